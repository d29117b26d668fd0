// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/sdk/wire"
)

// AskLimit limits how long a plugin's binary may take to answer.
const AskLimit = 20 * time.Second

// verbLimit is the limit when only an operator waits. A large or busy node needs more time to
// answer.
const verbLimit = time.Minute

// errNoAnswer is returned if a binary does not answer a verb in JSON.
var errNoAnswer = errors.New("no answer in JSON")

// Describe returns a plugin that no host runs, with its binary's description of itself.
func Describe(ctx context.Context, f launch.Found, sum string) admin.Plugin {
	p := Unused(f)
	p.APIVersion, p.Kind = admin.APIVersion, "Plugin"
	if f.Err != nil {
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	d, err := Decode[struct {
		Version          string
		Features, Limits []string
		Options          json.RawMessage
	}](Run(ctx, f.Path, sum, "describe", "-o", "json"))
	if err != nil {
		p.Why = err.Error()
		return p
	}
	p.Version, p.Features, p.Limits, p.Options = d.Version, d.Features, d.Limits, d.Options
	return p
}

// Check asks a plugin's binary whether it can run on this node with its settings in the config
// file.
func Check(ctx context.Context, f launch.Found, p config.Plugin) (admin.Check, error) {
	if f.Err != nil {
		return admin.Check{}, f.Err
	}
	ctx, cancel := context.WithTimeout(ctx, verbLimit)
	defer cancel()
	words := []string{"check", "-o", "json"}
	if len(p.Options) > 0 {
		words = append(words, "--options", string(p.Options))
	}
	c, err := Decode[admin.Check](Run(ctx, f.Path, p.SHA256, words...))
	c.APIVersion, c.Kind, c.Name, c.Path = admin.APIVersion, "Check", f.Name, f.Path
	return c, err
}

// WouldRemove returns what a plugin's binary would clean up.
func WouldRemove(ctx context.Context, path, sum string, flags ...string) ([]string, error) {
	cleaned, err := Decode[struct {
		Removed []string
		Error   string
	}](Run(ctx, path, sum, append([]string{"cleanup", "--dry-run", "-o", "json"}, flags...)...))
	if err == nil && cleaned.Error != "" {
		err = errors.New(cleaned.Error)
	}
	return cleaned.Removed, err
}

// Decode decodes the output of a verb. A failed verb may report the reason in its output.
func Decode[T any](printed []byte, failed error) (T, error) {
	var t T
	if len(printed) == 0 && failed != nil {
		if exit := new(exec.ExitError); errors.As(failed, &exit) && exit.ExitCode() == wire.ExitUsage {
			failed = fmt.Errorf("%w: %w", errNoAnswer, failed)
		}
		return t, failed
	}
	if err := json.Unmarshal(printed, &t); err != nil {
		line, _, _ := bytes.Cut(printed, []byte("\n"))
		err = fmt.Errorf("%w: it printed %q to stdout; try: print everything except the answer to stderr", errNoAnswer, wire.Printable(string(line)))
		return t, errors.Join(err, failed)
	}
	return t, nil
}

// Run runs a verb of a plugin's binary until ctx ends, and returns its output. The file must meet the conditions of
// launch.OpenBinary, as for running the plugin.
func Run(ctx context.Context, path, sum string, words ...string) ([]byte, error) {
	binary, err := launch.OpenBinary(path, sum)
	if err != nil {
		return nil, err
	}
	defer binary.Close()
	cmd := binary.Command(ctx, words...)
	cmd.WaitDelay = time.Second
	printed, err := cmd.Output()
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("killed before it answered: %w", ctx.Err())
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return printed, fmt.Errorf("%s %s: %w", path, words[0], err)
	}
	return printed, nil
}
