// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
)

// Listen makes a pipe of that name, which no process may have yet. It is open to this user,
// administrators and the system.
func Listen(path string) (net.Listener, error) {
	if !IsPath(path) {
		return nil, fmt.Errorf(`%s is no pipe: want %sNAME`, path, Prefix)
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return nil, fmt.Errorf("ask for this process's user: %w", err)
	}
	if use(path) { // wine 8.0 lets two processes make the first instance of a pipe
		return nil, fmt.Errorf("another process has the pipe %s already", path)
	}
	l, err := winio.ListenPipe(path, &winio.PipeConfig{SecurityDescriptor: fmt.Sprintf("O:%[1]sD:P(A;;GA;;;SY)(A;;GA;;;BA)(A;;GA;;;%[1]s)", user.User.Sid)})
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) || errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("another process has the pipe %s already: %w", path, err)
	}
	if err == nil {
		// go-winio makes the first instance only to have the name. Windows connects no client to it,
		// but wine 8.0 does, and nothing would answer that client.
		use(path)
	}
	return l, err
}

// use connects to an instance of the pipe, and closes it. It reports whether there is such a pipe.
func use(path string) bool {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return false
	}
	h, err := windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE, 0, nil, windows.OPEN_EXISTING, windows.SECURITY_SQOS_PRESENT|windows.SECURITY_ANONYMOUS, 0)
	if err == nil {
		_ = windows.CloseHandle(h)
	}
	return err == nil || errors.Is(err, windows.ERROR_PIPE_BUSY)
}

// Dial connects to the pipe, until ctx ends. Where nothing listens, the error is fs.ErrNotExist.
// The process behind it cannot act as this one's user.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	if !IsPath(path) {
		return nil, fmt.Errorf(`%s is no pipe: want %sNAME`, path, Prefix)
	}
	conn, err := winio.DialPipeContext(ctx, path)
	if err == nil {
		if err = owned(conn); err != nil {
			_ = conn.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return conn, nil
}

// owned returns an error if the pipe behind conn is another user's: any user may make a pipe of a
// free name.
func owned(conn net.Conn) error {
	has, err := windows.GetSecurityInfo(windows.Handle(conn.(interface{ Fd() uintptr }).Fd()), windows.SE_KERNEL_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return fmt.Errorf("ask for its owner: %w", err)
	}
	owner, _, err := has.Owner()
	if err != nil {
		return fmt.Errorf("ask for its owner: %w", err)
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return fmt.Errorf("ask for this process's user: %w", err)
	}
	if owner.Equals(user.User.Sid) || owner.IsWellKnown(windows.WinLocalSystemSid) || owner.IsWellKnown(windows.WinBuiltinAdministratorsSid) {
		return nil
	}
	return fmt.Errorf("it is of the user %s, who is neither this one nor an administrator: %w", owner, fs.ErrPermission)
}
