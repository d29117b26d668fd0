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

// Listen makes a pipe of that name, which no process may have yet.
func Listen(path string) (net.Listener, error) {
	if !IsPath(path) {
		return nil, fmt.Errorf(`%s is no pipe: want %sNAME`, path, Prefix)
	}
	user, err := currentUser()
	if err != nil {
		return nil, err
	}
	if taken(path) {
		return nil, fmt.Errorf("another process has the pipe %s already", path)
	}
	// Its first instance is only made where there is none, and no other machine may connect.
	l, err := winio.ListenPipe(path, &winio.PipeConfig{SecurityDescriptor: access(user.String())})
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) || errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("another process has the pipe %s already: %w", path, err)
	}
	if err == nil {
		useUp(path)
	}
	return l, err
}

// useUp takes the first instance of a pipe out of use. go-winio makes that one only to have the
// name. Windows connects no client to it, but wine 8.0 does, and nothing would answer that client.
func useUp(path string) {
	if h, err := open(path); err == nil {
		_ = windows.CloseHandle(h)
	}
}

// taken reports whether there is such a pipe. wine 8.0 lets two processes make the first instance
// of one.
func taken(path string) bool {
	h, err := open(path)
	if err == nil {
		_ = windows.CloseHandle(h)
	}
	return err == nil || errors.Is(err, windows.ERROR_PIPE_BUSY)
}

// open opens an instance that waits for a client. What it connects to cannot act as this user.
func open(path string) (windows.Handle, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return windows.InvalidHandle, err
	}
	return windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE, 0, nil, windows.OPEN_EXISTING, windows.SECURITY_SQOS_PRESENT|windows.SECURITY_ANONYMOUS, 0)
}

// access is the security descriptor of a pipe: it is the user's, and open to the system,
// administrators and that user.
func access(user string) string {
	return fmt.Sprintf("O:%[1]sD:P(A;;GA;;;SY)(A;;GA;;;BA)(A;;GA;;;%[1]s)", user)
}

// Dial connects to the pipe, until ctx ends. Where nothing listens, the error is fs.ErrNotExist.
// The process behind it cannot act as this one's user.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	if !IsPath(path) {
		return nil, fmt.Errorf(`%s is no pipe: want %sNAME`, path, Prefix)
	}
	conn, err := winio.DialPipeContext(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	if err := owned(conn); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return conn, nil
}

// owned returns an error if the pipe behind conn is another user's.
func owned(conn net.Conn) error {
	handle, ok := conn.(interface{ Fd() uintptr })
	if !ok {
		return errors.New("the connection has no handle")
	}
	has, err := windows.GetSecurityInfo(windows.Handle(handle.Fd()), windows.SE_KERNEL_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return fmt.Errorf("ask for its owner: %w", err)
	}
	owner, _, err := has.Owner()
	if err != nil {
		return fmt.Errorf("ask for its owner: %w", err)
	}
	user, err := currentUser()
	if err != nil {
		return err
	}
	if owner.Equals(user) || owner.IsWellKnown(windows.WinLocalSystemSid) || owner.IsWellKnown(windows.WinBuiltinAdministratorsSid) {
		return nil
	}
	return fmt.Errorf("it is of the user %s, who is neither this one nor an administrator: %w", owner, fs.ErrPermission)
}

func currentUser() (*windows.SID, error) {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return nil, fmt.Errorf("ask for this process's user: %w", err)
	}
	return user.User.Sid, nil
}
