// SPDX-License-Identifier: Apache-2.0

// Parting is a plugin that serves nothing, and says what a change to another mode would
// end, and what one to it would: what stands in the files "active" and "standby" beside its
// binary. It is called as its binary is.
package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

func main() {
	binary, err := os.Executable()
	if err != nil {
		binary = os.Args[0]
	}
	_, name, _ := strings.Cut(filepath.Base(binary), "dataplane-")
	d := sdk.Description{Name: name, Version: "0.0.0", Features: sdk.Features}
	wire.Serve(d, &parting{description: d, beside: filepath.Dir(binary)})
}

type parting struct {
	description sdk.Description
	state       sdk.State
	role        atomic.Int32 // an sdk.Role; Report is called at any time
	beside      string
}

func (p *parting) Configure(context.Context, sdk.Setup) (sdk.Description, error) {
	p.state = sdk.State{}
	return p.description, nil
}

func (p *parting) Sync(_ context.Context, u sdk.Update) (sdk.Result, error) {
	if _, err := p.state.Apply(u); err != nil {
		return sdk.Result{}, err
	}
	p.state.Confirm()
	return sdk.Result{}, nil
}

func (p *parting) SetRole(_ context.Context, role sdk.Role) error {
	p.role.Store(int32(role))
	return nil
}

func (p *parting) Cleanup(context.Context, sdk.Leftovers) ([]string, error) { return nil, nil }

func (p *parting) Report() sdk.Report {
	role := sdk.Role(p.role.Load()).String()
	text, _ := os.ReadFile(filepath.Join(p.beside, role)) // there is none where nothing would end
	return sdk.Report{SwapImpact: strings.TrimSpace(string(text))}
}
