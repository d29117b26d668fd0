// SPDX-License-Identifier: Apache-2.0

//go:build unix

package launch

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
)

func executable(path string, info os.FileInfo) error {
	if info.Mode()&0o111 == 0 {
		return fmt.Errorf("it is not executable; try: chmod +x %s: %w", path, os.ErrPermission)
	}
	return nil
}

// unstarted returns why the kernel would not run the binary.
func unstarted(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("it is not a program for this machine (%s): %s: %w", runtime.GOARCH, kindOf(path), err)
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("the interpreter or loader that it names is missing: %w", err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("this user may not run it, or its file system is mounted noexec: %w", err)
	}
	return err
}

// kindOf says what the file is, as far as its first bytes tell.
func kindOf(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return "it is no ELF binary, and no script that names its interpreter"
	}
	defer f.Close()
	return "it is built for " + strings.ToLower(strings.TrimPrefix(f.Machine.String(), "EM_"))
}
