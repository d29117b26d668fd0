// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"errors"
	"fmt"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

func sameSetupTwice(t *trial) {
	s := t.scenario("cluster-ip")
	t.serve(s)
	before := t.description
	t.during("after being configured again")
	t.need(t.configure())
	if before.Name != t.description.Name || join(before.Limits) != join(t.description.Limits) {
		t.fail(mismatch{fmt.Sprintf("%+v", before), fmt.Sprintf("%+v", t.description)})
	}
	t.serves(s)
	t.serve(s)
}

func firstIsFull(t *trial) { t.resyncs(sdk.Update{}) }

func newSessionStartsOver(t *trial) {
	t.serve(t.scenario("cluster-ip"))
	at := t.revision
	t.need(t.configure())
	t.revision = at
	t.resyncs(sdk.Update{})
}

// olderIsFenced: when another host has begun a session, the one before is refused.
func olderIsFenced(t *trial) {
	older, ok := t.dp.(*wire.Remote)
	if !ok || older.Target().Network == "local" {
		t.fail(excused{"the dataplane is in this process, where there is one host"})
	}
	s := t.scenario("cluster-ip")
	t.serve(s)
	t.during("as another host")
	newer, err := wire.Attach(t.ctx, older.Target())
	t.need(err)
	defer newer.Close()
	_, err = newer.Configure(t.ctx, t.setup())
	t.need(err)
	t.during("")
	if _, err := t.offer(s.Update(0)); !errors.Is(err, wire.ErrFenced) {
		t.fail(mismatch{"ErrFenced for an update of the session before", orNil(err).Error()})
	}
	t.need(t.configure())
}

// resyncs expects an update that leads on from nothing to be refused.
func (t *trial) resyncs(u sdk.Update) {
	if _, err := t.offer(u); !errors.Is(err, sdk.ErrResync) {
		t.fail(mismatch{"ErrResync for an update that leads on from nothing", orNil(err).Error()})
	}
}

// orNil lets a nil error be shown.
func orNil(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

func gapResyncs(t *trial) {
	s := t.scenario("cluster-ip")
	t.serve(s)
	t.revision += 5
	t.resyncs(sdk.Update{Delete: []sdk.Name{s.Services[0].Name}})
	t.during("after a refused update")
	t.serves(s)
	t.sync(s.Update(0))
}
