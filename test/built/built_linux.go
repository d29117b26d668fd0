// SPDX-License-Identifier: Apache-2.0

// Package built builds the programs that tests run, once for all test processes: linking the host and its dataplanes
// takes ten seconds of a processor, and a dozen packages run them. The programs are below bin/, and the go command
// itself decides whether they must be built again. Tests must not write to them. Start reading at Into.
package built

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Into puts programs into a folder, each under the last element of its package's path: as a link, or if that is
// impossible as a copy. Packages are named from the root of this module, as "./host/pointsman". Tags, such as
// "failpoints", make another program.
func Into(dir, tags string, packages ...string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	// A user may not replace what root has built.
	shared := filepath.Join(root, "bin", fmt.Sprintf("test-%d", os.Getuid()), "tags-"+tags)
	if err := errors.Join(os.MkdirAll(shared, 0o755), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	unlock, err := lock(shared + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	build := exec.Command("go", append([]string{"build", "-tags", tags, "-o", shared + "/"}, packages...)...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	for _, p := range packages {
		if err := Place(filepath.Join(shared, path.Base(p)), filepath.Join(dir, path.Base(p))); err != nil {
			return err
		}
	}
	return nil
}

// All puts the host, every plugin of this module and the conformance suite into a folder, where any user may run them.
func All(dir string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	mains, err := filepath.Glob(filepath.Join(root, "plugins/*/pointsman-dataplane-*/main.go"))
	if err != nil {
		return err
	}
	packages := []string{"./host/pointsman", "./sdk/sdktest/pointsman-conformance"}
	for _, main := range mains {
		packages = append(packages, "."+strings.TrimPrefix(filepath.Dir(main), root))
	}
	return errors.Join(Into(dir, "", packages...), os.Chmod(dir, 0o755))
}

// Place puts a program at a path: a link, which exists at once, or a copy if it replaces a file or the path is on
// another file system. Running processes keep the old file.
func Place(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	if err := copyOf(from, to+".new"); err != nil {
		return fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	return os.Rename(to+".new", to)
}

func copyOf(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// moduleRoot returns the folder of this module. A test's working directory is that of its package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		} else if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find go.mod above the test: %w", err)
		}
		dir = filepath.Dir(dir)
	}
}

// lock waits until no other test process builds.
func lock(file string) (unlock func() error, err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file, err), f.Close())
	}
	return f.Close, nil
}
