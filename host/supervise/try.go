// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// Try starts a process of the plugin beside the one that serves, has f use it, and
// ends it. It reports whether the process died of that. An error says that nothing
// is known, because it did not come up, or f failed without its dying.
func (p Plugin) Try(ctx context.Context, f func(context.Context, *wire.Remote, sdk.Description) error) (died bool, err error) {
	v, err := p.launch(ctx)
	if err != nil {
		return false, err
	}
	defer func() { v.stop(); endHelpers(ended(v.remote)) }()
	err = f(ctx, v.remote.Remote, v.description)
	if err == nil {
		return false, nil
	}
	select { // its last words may come before its end is known
	case <-v.remote.Exited():
		return true, nil
	case <-time.After(time.Second):
		return false, err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
