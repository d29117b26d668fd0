// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"errors"
	"fmt"

	"github.com/pointsman/pointsman/sdk"
)

func sameSetupTwice(t *trial) error {
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	if err := t.serve(s); err != nil {
		return err
	}
	before := t.description
	if err := t.configure(); err != nil {
		return fmt.Errorf("the second time: %w", err)
	}
	if before.Name != t.description.Name || join(before.Limits) != join(t.description.Limits) {
		return fmt.Errorf("it was %+v and is now %+v", before, t.description)
	}
	if err := t.serves(s); err != nil {
		return fmt.Errorf("after being configured again: %w", err)
	}
	return t.serve(s)
}

func firstIsFull(t *trial) error {
	return expectResync(t.offer(sdk.Update{}))
}

func newSessionStartsOver(t *trial) error {
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	if err := t.serve(s); err != nil {
		return err
	}
	at := t.revision
	if err := t.configure(); err != nil {
		return err
	}
	t.revision = at
	return expectResync(t.offer(sdk.Update{}))
}

func expectResync(_ sdk.Result, err error) error {
	if !errors.Is(err, sdk.ErrResync) {
		return fmt.Errorf("an update that leads on from nothing got %w, not ErrResync", orNil(err))
	}
	return nil
}

// orNil lets a nil error be shown.
func orNil(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

func gapResyncs(t *trial) error {
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	if err := t.serve(s); err != nil {
		return err
	}
	t.revision += 5
	names := []sdk.Name{s.Services[0].Name}
	if err := expectResync(t.offer(sdk.Update{Delete: names})); err != nil {
		return err
	}
	if err := t.serves(s); err != nil {
		return fmt.Errorf("after a refused update: %w", err)
	}
	return t.sync(s.Update(0))
}
