// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// jobEnv says what a process of TestTie is: the host, or one that only waits.
const jobEnv = "POINTSMAN_TEST_JOB"

// TestTie: a host that is killed takes along what it started, but not what is to outlive it.
func TestTie(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	switch os.Getenv(jobEnv) {
	case "waits":
		time.Sleep(time.Minute)
		return
	case "host":
		hosts(t, self)
		return
	}
	host := exec.Command(self, "-test.run=^TestTie$")
	host.Env = append(os.Environ(), jobEnv+"=host")
	out, err := host.StdoutPipe()
	if err == nil {
		err = host.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var tied, outlives int
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "children %d %d", &tied, &outlives); n == 2 {
			break
		}
	}
	if tied == 0 {
		t.Fatal("the host started nothing")
	}
	left, err := watch(outlives, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer left.kill(os.Kill)
	_ = host.Process.Kill()
	_ = host.Wait()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err := StartTime(tied); errors.Is(err, os.ErrProcessDone) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("what the host started outlives it")
		}
	}
	if left.gone() {
		t.Error("what is to outlive the host ended with it")
	}
}

// hosts starts one process that ends with it and one that does not, and waits to be killed.
func hosts(t *testing.T, self string) {
	if err := Tie(); err != nil {
		t.Fatal(err)
	}
	var pids []any
	for _, outlives := range []bool{false, true} {
		cmd := exec.Command(self, "-test.run=^TestTie$")
		cmd.Env = append(os.Environ(), jobEnv+"=waits")
		cmd.SysProcAttr = separate(outlives)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, cmd.Process.Pid)
	}
	fmt.Printf("children %d %d\n", pids...)
	time.Sleep(time.Minute)
}
