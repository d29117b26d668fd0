// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"strings"
)

// places are the folders of Windows in which programs have what is theirs.
type places struct{ data, programs string }

func windowsPlaces(env func(string) string) places {
	return places{cmp.Or(env("ProgramData"), `C:\ProgramData`), cmp.Or(env("ProgramFiles"), `C:\Program Files`)}
}

func (p places) file() string { return p.data + `\Pointsman\host.yaml` }

// in returns the defaults as they are on Windows: in its own places, with a pipe for a socket,
// and with the only dataplane that there is.
func (p places) in(defaults string) string {
	own := p.data + `\Pointsman`
	return strings.NewReplacer(
		"\nmode: iptables\n", "\nmode: userspace\n",
		"\nadminSocket: /run/pointsman/pointsman.sock\n", "\nadminSocket: "+quoted(`\\.\pipe\pointsman`)+"\n",
		"\nstateDir: /run/pointsman\n", "\nstateDir: "+quoted(own+`\state`)+"\n",
		"\ndataDir: /var/lib/pointsman\n", "\ndataDir: "+quoted(own+`\data`)+"\n",
		"\npluginDirs: [/usr/libexec/pointsman]\n", "\npluginDirs: ["+quoted(p.programs+`\Pointsman`)+"]\n",
	).Replace(defaults)
}

// quoted returns text as YAML has it between single quotes, where a backslash means itself.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
