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

// Listen creates a pipe for this user, administrators and the system. It refuses a name that is in
// use.
func Listen(path string) (net.Listener, error) {
	if !IsPath(path) {
		return nil, fmt.Errorf(`%s is not the name of a pipe: want %sNAME`, path, Prefix)
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return nil, fmt.Errorf("get the user of this process: %w", err)
	}
	if connectOnce(path) { // in wine 8.0 two processes can create the first instance of a pipe
		return nil, fmt.Errorf("another process has the pipe %s already", path)
	}
	l, err := winio.ListenPipe(path, &winio.PipeConfig{SecurityDescriptor: fmt.Sprintf("O:%[1]sD:P(A;;GA;;;SY)(A;;GA;;;BA)(A;;GA;;;%[1]s)", user.User.Sid)})
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) || errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("another process has the pipe %s already: %w", path, err)
	}
	if err == nil {
		// go-winio creates the first instance only to reserve the name. Windows connects no client to it,
		// but wine 8.0 does, and no process would answer that client.
		connectOnce(path)
	}
	return l, err
}

// connectOnce connects to an instance of the pipe and closes the connection. It reports whether the pipe exists.
func connectOnce(path string) bool {
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

// Dial connects to the pipe. The error is fs.ErrNotExist if nothing listens. The process at the other
// end cannot impersonate this process's user.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	if !IsPath(path) {
		return nil, fmt.Errorf(`%s is not the name of a pipe: want %sNAME`, path, Prefix)
	}
	conn, err := winio.DialPipeContext(ctx, path)
	if err == nil {
		if err = checkOwner(conn); err != nil {
			_ = conn.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return conn, nil
}

// checkOwner returns an error if the pipe does not belong to this user, administrators or the system.
func checkOwner(conn net.Conn) error {
	has, err := windows.GetSecurityInfo(windows.Handle(conn.(interface{ Fd() uintptr }).Fd()), windows.SE_KERNEL_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return fmt.Errorf("get the owner of the pipe: %w", err)
	}
	owner, _, err := has.Owner()
	if err != nil {
		return fmt.Errorf("get the owner of the pipe: %w", err)
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return fmt.Errorf("get the user of this process: %w", err)
	}
	if owner.Equals(user.User.Sid) || owner.IsWellKnown(windows.WinLocalSystemSid) || owner.IsWellKnown(windows.WinBuiltinAdministratorsSid) {
		return nil
	}
	return fmt.Errorf("the pipe belongs to user %s: want this user, an administrator or the system: %w", owner, fs.ErrPermission)
}
