// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kubectl stands for the cluster in tests of the script: it notes what is asked for in the file asked,
// has the Jobs fail that are in the file fails, and pods be ready but those that are in unready,
// as SELECTOR NODE.
const kubectl = `#!/bin/sh
cd "$(dirname "$0")" || exit 9
[ "$1" != --namespace ] || shift 2
case "$1 $2" in
"replace --force") job=$(sed -n 's/^  name: //p'); echo "job $job" >>asked ;;
"label node") echo "$3 $4" >>asked ;;
"get job/"*) if grep -qx "${2#job/}" fails; then echo "FailureTarget Failed "; else echo "SuccessCriteriaMet Complete "; fi ;;
"logs job/"*) echo "says why" ;;
"get pods") if grep -qx "$4 ${6#spec.nodeName=}" unready; then echo False; else echo True; fi ;;
*) echo "no such verb: $*" >&2; exit 9 ;;
esac
`

// TestRollout plays the script of docs/rollout.md through: what it does in which order, where it stops,
// and what it takes back.
func TestRollout(t *testing.T) {
	const own, theirs = "app.kubernetes.io/name=pointsman", "k8s-app=kube-proxy"
	const on, off = " pointsman.dev/proxy=pointsman", " pointsman.dev/proxy-"
	well := func(node string) []string { return []string{"job check-" + node, node + on, "job trial-" + node} }
	for name, tc := range map[string]struct {
		env            []string
		nodes          string
		fails, unready string
		exit           int
		asked          []string
		says           string
	}{
		"all are well": {nodes: "a b", asked: slices.Concat(well("a"), well("b")), says: "rollout: a b: served with pointsman.dev/proxy=pointsman, and well for 5m each"},
		"one cannot be served": {nodes: "a b c", fails: "check-b", exit: 1,
			asked: append(well("a"), "job check-b"), says: "check: says why\nrollout: stopped before b: it cannot be served so; a keeps the label"},
		"one is not well": {nodes: "a b c", fails: "trial-b", exit: 1,
			asked: slices.Concat(well("a"), well("b"), []string{"b" + off}), says: "trial: says why\nrollout: stopped. b is served as before; a keeps the label"},
		"one does not become ready": {env: []string{"WITHIN=1"}, nodes: "a b", unready: own + " a", exit: 1,
			asked: append(well("a")[:2], "a"+off), says: "no pod with app.kubernetes.io/name=pointsman became ready within 1 seconds, alone\nrollout: stopped. a is served as before; no node keeps the label"},
		"and cannot be taken back": {env: []string{"WITHIN=1"}, nodes: "a b", fails: "trial-a", unready: theirs + " a", exit: 2,
			asked: append(well("a"), "a"+off), says: "a is not served as before"},
		"a pool": {env: []string{"LABEL=pointsman.dev/pool=new", "FOR=1m30s"}, nodes: "a b", fails: "trial-b", exit: 1,
			asked: []string{"a pointsman.dev/pool=new", "job trial-a", "b pointsman.dev/pool=new", "job trial-b", "b pointsman.dev/pool-"}, says: "a keeps the label"},
		"no node":            {exit: 64, says: "name the nodes"},
		"a label of no kind": {env: []string{"LABEL=new"}, nodes: "a", exit: 64, says: "LABEL is new; want KEY=VALUE"},
		"no time":            {env: []string{"FOR=long"}, nodes: "a", exit: 64, says: "FOR is long; want such as 5m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{"kubectl": kubectl, "fails": tc.fails + "\n", "unready": tc.unready + "\n", "asked": ""} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "../configs/rollout/rollout", strings.Fields(tc.nodes)...)
			cmd.Env = append([]string{"PATH=" + dir + ":" + os.Getenv("PATH")}, tc.env...)
			out, err := cmd.CombinedOutput()
			if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != tc.exit || !strings.Contains(string(out), tc.says) {
				t.Errorf("it ends with %d, want %d and %q:\n%s", code, tc.exit, tc.says, out)
			}
			if asked := strings.Split(strings.TrimSpace(read(t, filepath.Join(dir, "asked"))), "\n"); !slices.Equal(asked, tc.asked) && !(len(tc.asked) == 0 && asked[0] == "") {
				t.Errorf("it asked for\n%q\nwant\n%q", asked, tc.asked)
			}
		})
	}
}
