// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

// listLimit is how long a program of iptables may take to list all rules.
const listLimit = 20 * time.Second

// backends finds rules in both backends of iptables: a packet passes both, so that what one accepts the other
// may drop, and each program shows only its own. The older one is asked only where it has tables, since to ask
// it would make them.
func (n Node) backends() (found []admin.Finding) {
	const check = "iptables backends"
	for _, f := range []struct{ tables, program string }{{"net/ip_tables_names", "iptables"}, {"net/ip6_tables_names", "ip6tables"}} {
		tables, err := n.read(f.tables)
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && tables == "":
			continue
		case err != nil:
			found = append(found, unknown(check, err)...)
			continue
		}
		legacy, err := rules(f.program + "-legacy-save")
		nft, nftErr := rules(f.program + "-nft-save")
		switch err = errors.Join(err, nftErr); {
		case err != nil:
			found = append(found, unknown(check, err)...)
		case legacy > 0 && nft > 0:
			found = append(found, admin.Finding{Check: check, Result: admin.Warn,
				Why: fmt.Sprintf("both have rules of %s, %d of legacy and %d of nft: packets pass both, and what one accepts the other may drop", f.program, legacy, nft),
				Try: fmt.Sprintf("%s-legacy-save and %s-nft-save show what is whose; have all programs of the node use one", f.program, f.program)})
		}
	}
	if len(found) == 0 {
		return ok(check, "at most one has rules")
	}
	return found
}

// rules counts those that a program lists, as it lists them.
func rules(program string) (count int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), listLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, fmt.Errorf("list rules: %w", err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "-A ") {
			count++
		}
	}
	if err := errors.Join(lines.Err(), cmd.Wait()); err != nil {
		return 0, fmt.Errorf("list rules by %s: %w", program, err)
	}
	return count, nil
}
