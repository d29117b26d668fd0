// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/windows"
)

const careful = 0

// settle has nothing to do: directories cannot be synced.
func settle(string) error { return nil }

// Guarded reports which other users could change what is in dir, if so. Dir and each folder that
// leads to it must belong to this user, administrators or the system, and its access control list
// must let no other user write to it, nor replace what leads to it.
func Guarded(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if real, err = filepath.Abs(real); err != nil {
		return err
	}
	me, err := user()
	if err != nil {
		return err
	}
	has, err := accessOf(real)
	if err != nil {
		return err
	}
	if err := has.guarded(real, me, name); err != nil {
		return err
	}
	for at := real; at != filepath.Dir(at); {
		at = filepath.Dir(at)
		has, err := accessOf(at)
		if err != nil {
			return err
		}
		if err := has.leads(at, me, name); err != nil {
			return err
		}
	}
	return nil
}

// accessOf reads the security descriptor of a folder or a file.
func accessOf(path string) (access, error) {
	has, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return access{}, fmt.Errorf("ask who may change %s: %w", path, err)
	}
	owner, _, err := has.Owner()
	if err != nil {
		return access{}, fmt.Errorf("ask whose %s is: %w", path, err)
	}
	if owner == nil {
		return access{}, fmt.Errorf("%s has no owner", path)
	}
	a := access{owner: owner.String()}
	list, _, err := has.DACL()
	switch {
	case errors.Is(err, windows.ERROR_OBJECT_NOT_FOUND), err == nil && list == nil:
		a.all = true
		return a, nil
	case err != nil:
		return access{}, fmt.Errorf("ask who may change %s: %w", path, err)
	}
	for i := range uint32(list.AceCount) {
		var ace *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(list, i, &ace); err != nil {
			return access{}, fmt.Errorf("ask who may change %s: %w", path, err)
		}
		if e, ok := entryOf(ace); ok {
			a.entries = append(a.entries, e)
		}
	}
	return a, nil
}

// Kinds of entries that golang.org/x/sys/windows has no names for.
const (
	deniedObject   = 0x6
	deniedCallback = 0xa
	deniedBoth     = 0xc
)

// entryOf is what ace allows; not ok, if it denies.
func entryOf(ace *windows.ACCESS_ALLOWED_ACE) (entry, bool) {
	e := entry{mask: uint32(ace.Mask), inherited: ace.Header.AceFlags&windows.INHERIT_ONLY_ACE != 0}
	switch ace.Header.AceType {
	case windows.ACCESS_DENIED_ACE_TYPE, deniedObject, deniedCallback, deniedBoth:
		return entry{}, false
	case windows.ACCESS_ALLOWED_ACE_TYPE:
		e.user = (*windows.SID)(unsafe.Pointer(&ace.SidStart)).String()
	default:
		e.user, e.strange = fmt.Sprintf("an entry of kind %d", ace.Header.AceType), true
	}
	return e, true
}

// user is the SID of this process's user.
func user() (string, error) {
	u, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return "", fmt.Errorf("ask for this process's user: %w", err)
	}
	return u.User.Sid.String(), nil
}

// name is a user's or a group's, as people know it.
func name(sid string) string {
	parsed, err := windows.StringToSid(sid)
	if err != nil {
		return sid
	}
	account, domain, _, err := parsed.LookupAccount("")
	if err != nil {
		return sid
	}
	if domain != "" {
		account = domain + `\` + account
	}
	return account + " (" + sid + ")"
}

// MakeDir makes dir, and the folders that lead to it, where they are not there yet: for this user,
// administrators and the system alone.
func MakeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return &os.PathError{Op: "mkdir", Path: dir, Err: windows.ERROR_DIRECTORY}
		}
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := MakeDir(parent); err != nil {
			return err
		}
	}
	me, err := user()
	if err != nil {
		return err
	}
	descriptor, err := windows.SecurityDescriptorFromString(private(me))
	if err != nil {
		return fmt.Errorf("make folder %s: %w", dir, err)
	}
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	only := &windows.SecurityAttributes{SecurityDescriptor: descriptor}
	only.Length = uint32(unsafe.Sizeof(*only))
	if err := windows.CreateDirectory(path, only); err != nil && !errors.Is(err, windows.ERROR_ALREADY_EXISTS) {
		return &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	return nil
}

// private is the security descriptor of a folder that is made: its access control list is
// protected from what the folder above would pass on.
func private(me string) string {
	return fmt.Sprintf("D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;FA;;;%s)", me)
}
