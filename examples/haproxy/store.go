// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/helper"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// A store is the folder in which a process of the plugin leaves to the next one, and to Cleanup,
// which instances of HAProxy there are: current.json, and a folder for each by its number. It is
// one for each network namespace, and has short paths, for sockets.
type store string

// storeHere returns the store of this process's network namespace.
func storeHere() (store, error) {
	namespace, err := os.Readlink("/proc/self/ns/net") // net:[4026531840]
	if err != nil {
		return "", fmt.Errorf("which network namespace is this: %w", err)
	}
	namespace = strings.NewReplacer(":[", "-", "]", "").Replace(namespace)
	return store(filepath.Join(base(), namespace)), nil
}

// base is where this user's processes keep what outlives them and not a reboot.
func base() string {
	if os.Geteuid() == 0 {
		return "/run/pointsman/haproxy"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "pointsman-haproxy")
	}
	return filepath.Join(os.TempDir(), "pointsman-haproxy-"+strconv.Itoa(os.Geteuid()))
}

// A record is what an instance was started with. Which endpoints it has by now, only it knows.
type record struct {
	Helpers  string // the folder in which its process is declared
	Sections []section
}

const (
	currentFile = "current.json"
	recordFile  = "sections.json"
	configFile  = "haproxy.cfg"
)

func (s store) dir(number int) string { return filepath.Join(string(s), strconv.Itoa(number)) }

// current returns the number of the instance that serves; zero: none does.
func (s store) current() (int, error) {
	data, err := statefile.Read(filepath.Join(string(s), currentFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var number int
	if err == nil {
		err = json.Unmarshal(data, &number)
	}
	if err != nil {
		return 0, fmt.Errorf("read which instance of HAProxy serves: %w", err)
	}
	return number, nil
}

// setCurrent writes down which instance serves; zero: none does.
func (s store) setCurrent(number int) error {
	file := filepath.Join(string(s), currentFile)
	if number == 0 {
		return statefile.Remove(file)
	}
	return statefile.Write(file, []byte(strconv.Itoa(number)+"\n"))
}

// numbers returns those of all instances that left a folder, in order.
func (s store) numbers() ([]int, error) {
	entries, err := os.ReadDir(string(s))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > 0 {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// make makes a folder for the next instance, with what it is to serve.
func (s store) make(helpers string, sections map[sdk.Name]section) (*instance, error) {
	if err := os.MkdirAll(string(s), 0o700); err != nil {
		return nil, err
	}
	if err := guarded(string(s)); err != nil {
		return nil, err
	}
	numbers, err := s.numbers()
	if err != nil {
		return nil, err
	}
	number := 1
	if len(numbers) > 0 {
		number = numbers[len(numbers)-1] + 1
	}
	i := &instance{number: number, dir: s.dir(number), helpers: helpers}
	if err := os.Mkdir(i.dir, 0o700); err != nil {
		return nil, err
	}
	rec := record{helpers, slices.SortedFunc(maps.Values(sections), func(a, b section) int { return a.Name.Compare(b.Name) })}
	return i, i.write(recordFile, func(w io.Writer) error { return json.NewEncoder(w).Encode(rec) })
}

// guarded reports, by an error, that another user may write where configuration is read from.
func guarded(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if owner, known := ownerOf(info); !info.IsDir() || info.Mode().Perm()&0o077 != 0 || known && owner != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user alone (%s); remove it", dir, info.Mode())
	}
	return nil
}

// open returns an instance that is there already, with what it was started with. Its process is
// nil if that has ended.
func (s store) open(number int) (*instance, record, error) {
	i := &instance{number: number, dir: s.dir(number)}
	var rec record
	data, err := os.ReadFile(filepath.Join(i.dir, recordFile))
	if err == nil {
		err = json.Unmarshal(data, &rec)
	}
	if err != nil {
		return i, rec, fmt.Errorf("read what instance %d of HAProxy serves: %w", number, err)
	}
	i.helpers = rec.Helpers
	i.process, err = helper.Find(i.helpers, i.name())
	if errors.Is(err, helper.ErrNone) {
		i.process, err = nil, nil
	}
	return i, rec, err
}

// live returns the sections of an instance as it has them now.
func (i *instance) live(ctx context.Context, rec record) (map[sdk.Name]running, error) {
	servers, err := i.api().servers(ctx, "")
	if err != nil {
		return nil, err
	}
	all := make(map[sdk.Name]running, len(rec.Sections))
	for _, s := range rec.Sections {
		all[s.Name] = s.with(servers[sectionName(s.Name)])
	}
	return all, nil
}
