// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"slices"
)

// Sift brings about what keys stand for, and sets aside those of which the kernel
// refuses a line, so that one bad Service never keeps out the others.
//
// try brings some of them about, beside what is there already. When the kernel
// refuses a line (a *LineError) it takes back what it has noted of them, and says
// to which the line may belong: none, if it cannot tell. Those are tried apart from
// the others, in halves if need be, until the guilty stand alone. At the end try is
// called with no keys, to put back what a refused try left.
func Sift[K comparable](keys []K, try func(keys []K) (suspects []K, err error)) (failed map[K]error, err error) {
	failed = make(map[K]error)
	err = sift(keys, try, failed)
	if err == nil && len(failed) > 0 {
		_, err = try(nil)
	}
	return failed, err
}

func sift[K comparable](keys []K, try func([]K) ([]K, error), failed map[K]error) error {
	suspects, err := try(keys)
	refused := new(LineError)
	switch {
	case err == nil, !errors.As(err, &refused), len(keys) == 0:
		return err
	case len(keys) == 1:
		failed[keys[0]] = err
		return nil
	}
	var rest, bad []K
	for _, k := range keys {
		if slices.Contains(suspects, k) {
			bad = append(bad, k)
		} else {
			rest = append(rest, k)
		}
	}
	if len(rest) == 0 || len(bad) == 0 {
		rest, bad = keys[:len(keys)/2], keys[len(keys)/2:]
	}
	if err := sift(rest, try, failed); err != nil {
		return err
	}
	return sift(bad, try, failed)
}
