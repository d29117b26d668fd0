// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows"
)

// gatherEnv says what a process of TestGather is, and launchEnv of which launch.
const (
	gatherEnv = "POINTSMAN_TEST_GATHER"
	launchEnv = "POINTSMAN_TEST_LAUNCH"
)

// TestGather: what a plugin started ends with it, but for what is told to outlive it: where the host
// that started it kills it, where it ends by itself, and where another host does that.
func TestGather(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	switch os.Getenv(gatherEnv) {
	case "waits":
		time.Sleep(time.Minute)
		return
	case "plugin", "plugin that ends":
		playStarter(t, self)
		return
	case "host":
		playGatherer(t, self)
		return
	}
	for _, outlives := range []bool{true, false} {
		t.Run(fmt.Sprintf("killed, and it would outlive its host: %v", outlives), func(t *testing.T) {
			c, pids := starter(t, self, "plugin", NewLaunch(), outlives)
			c.kill(os.Kill)
			pids.end(t)
		})
	}
	t.Run("it ends", func(t *testing.T) {
		_, pids := starter(t, self, "plugin that ends", NewLaunch(), true)
		pids.end(t)
	})
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprintf("the host was killed, and the next one knows the launch: %v", known), func(t *testing.T) {
			anotherHost(t, self, known)
		})
	}
}

// anotherHost kills a host, and then what it left serving.
func anotherHost(t *testing.T, self string, known bool) {
	launch := NewLaunch()
	host := exec.Command(self, "-test.run=^TestGather$")
	host.Env = append(os.Environ(), gatherEnv+"=host", launchEnv+"="+launch)
	out, err := host.StdoutPipe()
	if err == nil {
		err = host.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var plugin int
	var pids started
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "plugin %d started %d %d", &plugin, &pids.ends, &pids.outlives); n == 3 {
			break
		}
	}
	_ = host.Process.Kill()
	_ = host.Wait()
	p, err := watch(plugin, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !known {
		launch = NewLaunch()
	}
	p.gather(launch)
	p.kill(os.Kill)
	if !p.wait(context.Background(), 20*time.Second) {
		t.Fatal("it does not end")
	}
	if known {
		pids.end(t)
		return
	}
	for _, pid := range []int{pids.ends, pids.outlives} {
		killed(t, pid)
	}
}

// started are the processes that a plugin has started.
type started struct{ ends, outlives int }

// end waits until the one has ended that is to, and sees that the other one has not.
func (s started) end(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err := StartTime(s.ends); errors.Is(err, os.ErrProcessDone) {
			break
		}
		if time.Now().After(deadline) {
			t.Error("what the plugin started outlives it")
			break
		}
	}
	killed(t, s.outlives)
}

// killed kills a process that is to run.
func killed(t *testing.T, pid int) {
	t.Helper()
	p, err := watch(pid, 0)
	if err != nil {
		t.Errorf("it has ended with the plugin: %v", err)
		return
	}
	p.kill(os.Kill)
	if !p.wait(context.Background(), 20*time.Second) {
		t.Error("it does not end")
	}
}

// starter starts this binary in a part that starts two processes, as Launch starts a plugin.
func starter(t *testing.T, self, part, launch string, outlives bool) (*child, started) {
	t.Helper()
	cmd := exec.Command(self, "-test.run=^TestGather$")
	cmd.Env = append(os.Environ(), gatherEnv+"="+part)
	cmd.SysProcAttr = separate(outlives)
	c := newChild(context.Background(), cmd)
	c.launch, c.limit = launch, time.Minute
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.kill(os.Kill); c.wait(context.Background(), 20*time.Second) })
	if c.alone != nil {
		t.Fatal(c.alone)
	}
	<-c.first
	var s started
	if n, _ := fmt.Sscanf(c.line, "started %d %d", &s.ends, &s.outlives); n != 2 {
		t.Fatalf("it says %q, and %s", c.line, strings.Join(c.tail.text(), "\n"))
	}
	return c, s
}

// playStarter starts a process, and one that is to outlive it, once it is in a job.
func playStarter(t *testing.T, self string) {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if is, err := inJob(windows.CurrentProcess(), 0); is || err != nil || time.Now().After(deadline) {
			break
		}
	}
	var pids []any
	for _, flags := range []uint32{0, windows.CREATE_BREAKAWAY_FROM_JOB} {
		cmd := exec.Command(self, "-test.run=^TestGather$")
		cmd.Env = append(os.Environ(), gatherEnv+"=waits")
		cmd.SysProcAttr = &windows.SysProcAttr{CreationFlags: flags}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, cmd.Process.Pid)
	}
	fmt.Printf("started %d %d\n", pids...)
	if os.Getenv(gatherEnv) == "plugin" {
		time.Sleep(time.Minute)
	}
	os.Exit(0)
}

// playGatherer launches a plugin, says what it is, and waits to be killed.
func playGatherer(t *testing.T, self string) {
	if err := Tie(); err != nil {
		t.Fatal(err)
	}
	c, s := starter(t, self, "plugin", os.Getenv(launchEnv), true)
	fmt.Printf("plugin %d started %d %d\n", c.pid, s.ends, s.outlives)
	time.Sleep(time.Minute)
}
