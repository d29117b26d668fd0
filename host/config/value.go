// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// setNode sets dst to what a file says.
func setNode(dst reflect.Value, n *yaml.Node) error {
	if dst.Kind() != reflect.Slice {
		return setScalarNode(dst, n)
	}
	if n.Kind != yaml.SequenceNode {
		if n.Kind == yaml.ScalarNode && !isNull(n) {
			return fmt.Errorf("want a list, [%s], not %s", n.Value, describe(n))
		}
		return wrong("a list, such as [a, b]", n)
	}
	list := reflect.MakeSlice(dst.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		if err := setScalarNode(list.Index(i), item); err != nil {
			return err
		}
	}
	dst.Set(list)
	return nil
}

// setScalarNode keeps what YAML can tell apart apart: 5 is no text, "5" no number.
func setScalarNode(dst reflect.Value, n *yaml.Node) error {
	want, tags := wanted(dst.Type())
	if n.Kind != yaml.ScalarNode || !strings.Contains(tags, n.Tag) || n.Tag == "" {
		return wrong(want, n)
	}
	return setText(dst, n.Value)
}

// setText sets dst to what the environment or a flag says; a list is separated
// by commas.
func setText(dst reflect.Value, text string) error {
	if dst.Kind() == reflect.Slice {
		return setTexts(dst, strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' }))
	}
	want, _ := wanted(dst.Type())
	v, err := parse(dst.Type(), text)
	if err != nil {
		return fmt.Errorf("want %s, not %q", want, text)
	}
	dst.Set(v.Convert(dst.Type()))
	return nil
}

func setTexts(dst reflect.Value, texts []string) error {
	list := reflect.MakeSlice(dst.Type(), len(texts), len(texts))
	for i, text := range texts {
		if err := setText(list.Index(i), text); err != nil {
			return err
		}
	}
	dst.Set(list)
	return nil
}

// parse reads one value of type t.
func parse(t reflect.Type, text string) (reflect.Value, error) {
	var v any = text
	var err error
	switch t {
	case reflect.TypeFor[bool]():
		v, err = strconv.ParseBool(text)
	case reflect.TypeFor[int]():
		v, err = parseInt(text)
	case reflect.TypeFor[float64]():
		v, err = parseFloat(text)
	case reflect.TypeFor[time.Duration]():
		v, err = parseDuration(text)
	case reflect.TypeFor[netip.Prefix]():
		v, err = parsePrefix(text)
	}
	return reflect.ValueOf(v), err
}

// parseInt reads 14, and 0xe and 131_072 as YAML has them.
func parseInt(text string) (int, error) {
	v, err := strconv.ParseInt(text, 0, 32)
	return int(v), err
}

func parseFloat(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err == nil && (math.IsInf(v, 0) || math.IsNaN(v)) {
		return 0, errors.New("not finite")
	}
	return v, err
}

// parseDuration wants a unit, also for zero: 30 alone could be anything.
func parseDuration(text string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, errors.New("no unit")
	}
	return time.ParseDuration(text)
}

func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err == nil && p.Addr().Is4In6() {
		return p, errors.New("IPv4 written as IPv6")
	}
	return p.Masked(), err
}

// wanted says in words what a value of type t looks like, and which of YAML's
// tags it may have.
func wanted(t reflect.Type) (words, tags string) {
	switch t {
	case reflect.TypeFor[bool]():
		return "true or false", "!!bool"
	case reflect.TypeFor[int]():
		return "a whole number", "!!int"
	case reflect.TypeFor[float64]():
		return "a number", "!!int !!float"
	case reflect.TypeFor[time.Duration]():
		return "a time with its unit, such as 30s or 1h30m", "!!str"
	case reflect.TypeFor[netip.Prefix]():
		return "a range of addresses, such as 10.0.0.0/8 or fd00::/8", "!!str"
	}
	return "text", "!!str"
}

func wrong(want string, n *yaml.Node) error {
	return fmt.Errorf("want %s, not %s", want, describe(n))
}

// describe names what stands in a file, for errors.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "fields of its own"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind != yaml.ScalarNode:
		return "an alias"
	case n.Tag == "!!null":
		return `nothing (leave the line out, or write "")`
	case n.Tag == "!!int" || n.Tag == "!!float":
		return "the number " + n.Value
	case n.Tag == "!!bool":
		return n.Value
	}
	return fmt.Sprintf("%q", n.Value)
}
