// SPDX-License-Identifier: Apache-2.0

package wire

import "fmt"

// A conversion is that of one value's fields, in either direction. What is wrong with the
// first field that cannot be converted is its error.
type conversion struct{ err error }

// field converts one field; name is for the error.
func field[V, W any](c *conversion, name string, v V, f func(V) (W, error)) W {
	w, err := f(v)
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("%s: %w", name, err)
	}
	return w
}

// list converts each value of a field that has several; nil for none.
func list[V, W any](c *conversion, name string, values []V, f func(V) (W, error)) []W {
	if len(values) == 0 {
		return nil
	}
	out := make([]W, len(values))
	for i, v := range values {
		out[i] = field(c, name, v, f)
	}
	return out
}
