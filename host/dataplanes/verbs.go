// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/sdk/wire"
)

// This file asks plugins' binaries, by the verbs that every plugin has (package wire). They
// answer in JSON.

// errNoAnswer is that a binary does not answer in JSON. One that was built with an older sdk
// describes itself so, and nothing else.
var errNoAnswer = errors.New("it gives no answer in JSON; was it built with an older sdk?")

// Describe returns a plugin that no host runs, with what its binary says of itself.
func Describe(ctx context.Context, f supervise.Found, sum string) admin.Plugin {
	p := unused(f)
	p.APIVersion, p.Kind = admin.APIVersion, "Plugin"
	if f.Err != nil {
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	d, err := answer[struct {
		Version          string
		Features, Limits []string
		Options          json.RawMessage
	}](verb(ctx, f.Path, sum, "describe", "-o", "json"))
	if err != nil {
		p.Why = err.Error()
		return p
	}
	p.Version, p.Features, p.Limits, p.Options = d.Version, d.Features, d.Limits, d.Options
	return p
}

// refuses returns why this node cannot run a plugin, by its own word; empty: it can.
func refuses(ctx context.Context, path, sum string, options []byte) (why string, err error) {
	words := []string{"check", "-o", "json"}
	if len(options) > 0 {
		words = append(words, "--options", string(options))
	}
	checked, err := answer[struct {
		Runs bool
		Why  string
	}](verb(ctx, path, sum, words...))
	if err != nil || checked.Runs {
		return "", err
	}
	return checked.Why, nil
}

// wouldRemove returns the things that a plugin's binary would clean up.
func wouldRemove(ctx context.Context, path, sum string, flags ...string) ([]string, error) {
	cleaned, err := answer[struct {
		Removed []string
		Error   string
	}](verb(ctx, path, sum, append([]string{"cleanup", "--dry-run", "-o", "json"}, flags...)...))
	if err == nil && cleaned.Error != "" {
		err = errors.New(cleaned.Error)
	}
	return cleaned.Removed, err
}

// answer returns what a verb printed. One that failed may have said why in its answer.
func answer[T any](printed []byte, failed error) (T, error) {
	var t T
	if len(printed) == 0 && failed != nil {
		if exit := new(exec.ExitError); errors.As(failed, &exit) && exit.ExitCode() == wire.ExitUsage {
			failed = fmt.Errorf("%w: %w", errNoAnswer, failed)
		}
		return t, failed
	}
	if err := json.Unmarshal(printed, &t); err != nil {
		return t, errors.Join(fmt.Errorf("%w: %w", errNoAnswer, err), failed)
	}
	return t, nil
}

// verb runs a plugin's binary by hand, until ctx ends, and returns what it prints. Like
// the plugin itself it is run only if nothing else could have changed it.
func verb(ctx context.Context, path, sum string, words ...string) ([]byte, error) {
	binary, err := launch.OpenBinary(path, sum)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer binary.Close()
	cmd := binary.Command(ctx, words...)
	cmd.WaitDelay = time.Second
	printed, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return printed, fmt.Errorf("%s %s: %w", path, words[0], err)
	}
	return printed, nil
}
