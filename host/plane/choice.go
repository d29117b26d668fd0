// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// A Choice is the mode that "auto" stands for on a node. It is stored in a data directory,
// which survives a reboot.
type Choice struct {
	Mode string    `json:"mode"` // empty if none was made
	Why  string    `json:"why"`
	At   time.Time `json:"at"`
}

const choiceFile = "auto.json"

// ReadChoice reads the choice stored in dir. It returns the zero Choice if there is none, and
// also with an error.
func ReadChoice(dir string) (c Choice, err error) {
	path := filepath.Join(dir, choiceFile)
	text, err := statefile.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Choice{}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil && !supervise.ValidName(c.Mode) {
		err = fmt.Errorf("%q is no mode's name", c.Mode)
	}
	if err != nil {
		return Choice{}, fmt.Errorf("read which mode auto stands for: %s: %w", path, err)
	}
	return c, nil
}

// Keep stores the choice in dir, and creates dir if necessary.
func (c Choice) Keep(dir string) error {
	text, err := json.Marshal(c)
	if err == nil {
		err = statefile.MakeDir(dir)
	}
	if err == nil {
		err = statefile.Write(filepath.Join(dir, choiceFile), text)
	}
	if err != nil {
		return fmt.Errorf("write down which mode auto stands for: %w", err)
	}
	return nil
}
