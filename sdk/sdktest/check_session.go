// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
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
		return mismatch{fmt.Sprintf("%+v", before), fmt.Sprintf("%+v", t.description)}
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

// olderIsFenced: when another host has begun a session, the one before is refused.
func olderIsFenced(t *trial) error {
	older, ok := t.dp.(*wire.Remote)
	if !ok || older.Target().Network == "local" {
		return excused{"the dataplane is in this process, where there is one host"}
	}
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	if err := t.serve(s); err != nil {
		return err
	}
	newer, err := wire.Attach(t.ctx, older.Target())
	if err != nil {
		return fmt.Errorf("attach as another host: %w", err)
	}
	defer newer.Close()
	setup := sdk.Setup{Options: t.subject.Options, StateDir: t.stateDir, Log: slog.New(slog.DiscardHandler)}
	if _, err := newer.Configure(t.ctx, setup); err != nil {
		return fmt.Errorf("configure as another host: %w", err)
	}
	if _, err := t.offer(s.Update(0)); !errors.Is(err, wire.ErrFenced) {
		return mismatch{"ErrFenced for an update of the session before", orNil(err).Error()}
	}
	return t.configure()
}

func expectResync(_ sdk.Result, err error) error {
	if !errors.Is(err, sdk.ErrResync) {
		return mismatch{"ErrResync for an update that leads on from nothing", orNil(err).Error()}
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
