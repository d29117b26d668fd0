// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestTraceVerb: a packet that is named on the command line comes to the dataplane, and its ways
// are printed, for people and for programs.
func TestTraceVerb(t *testing.T) {
	t.Parallel()
	trace := func(dp sdk.Dataplane, words string) (exit int, out, err string) {
		var stdout, stderr bytes.Buffer
		exit = runCLI(subjectDescription(), dp, append([]string{"trace"}, strings.Fields(words)...), nil, &stdout, &stderr)
		return exit, stdout.String(), stderr.String()
	}
	exit, out, _ := trace(&gifted{}, "--from fd00::1 --to [fd00::2]:53 --protocol udp --origin pod --in cni0 -o json")
	var got traced
	if err := json.Unmarshal([]byte(out), &got); err != nil || exit != exitOK || len(got.Ways) != 2 {
		t.Fatalf("exit %d, %v: %s", exit, err, out)
	}
	if w := got.Ways[0]; w.Verdict != "forward" || w.To != "[fd00::2]:53" || w.Share != 0.75 || !w.Masquerade || strings.Join(w.Rules, " ") != "[fd00::1]:0 udp pod cni0" {
		t.Errorf("%+v", w)
	}
	for _, tt := range []struct {
		dp    sdk.Dataplane
		words string
		exit  int
		says  string
	}{
		{&gifted{}, "--from 10.0.0.1 --to 10.0.0.2:80", exitOK, "forward 10.0.0.2:80 (75%), which sees this node\n  by 10.0.0.1:0\n  by tcp\n"},
		{&gifted{}, "--from 10.0.0.1 --to 10.0.0.2:80 --origin node", exitOK, "cannot tell: 10.0.0.1:0\n"},
		{&gifted{}, "--from 10.0.0.1", ExitUsage, "want --from ADDRESS and --to ADDRESS:PORT"},
		{&gifted{}, "--from 10.0.0.1 --to [fd00::2]:53", ExitUsage, "of one IP family"},
		{&gifted{}, "--from 10.0.0.1 --to 10.0.0.2:80 --protocol icmp", ExitUsage, "want tcp, udp or sctp"},
		{&gifted{}, "--from 10.0.0.1 --to 10.0.0.2:80 --origin there", ExitUsage, "want node, pod or outside"},
		{&subject{}, "--from 10.0.0.1 --to 10.0.0.2:80", ExitUsage, "cannot trace packets"},
	} {
		exit, out, errs := trace(tt.dp, tt.words)
		if exit != tt.exit || !strings.Contains(out+errs, tt.says) {
			t.Errorf("%s: exit %d, %q; want %d, %q", tt.words, exit, out+errs, tt.exit, tt.says)
		}
	}
}
