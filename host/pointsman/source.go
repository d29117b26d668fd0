// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/host/watch"
)

// A source is where Services come from.
type source interface {
	Run(context.Context) error // tells the tracker, until the context ends
}

// A faulty source can say what is wrong with what it reads, as lines.
type faulty interface {
	Faults() []watch.Fault
}

// openSource is the source that the settings name, and what to call it.
func openSource(s config.Source, t *track.Tracker, report func(track.Notice)) (source, string, error) {
	if s.Files != nil {
		return watch.Files(s.Files.Path, t, watch.FileSettings{Report: report}), "files " + s.Files.Path, nil
	}
	return nil, "", errors.New("source.kubernetes: this version has no source but files; try: pointsman run --files FOLDER")
}
