// SPDX-License-Identifier: Apache-2.0

package images

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

type object = map[string]any

// spec is what runc is told of a container, as a kubelet and its container runtime would have it: user,
// capabilities, read-only paths and system calls by its securityContext. It has the node's network.
func (p *pod) spec(c corev1.Container, b built, root string) object {
	p.Helper()
	words := slices.Concat(c.Command, c.Args)
	if len(c.Command) == 0 {
		words = slices.Concat(b.Config.Entrypoint, c.Args)
		if len(c.Args) == 0 {
			words = slices.Concat(b.Config.Entrypoint, b.Config.Cmd)
		}
	}
	environ := slices.Clone(b.Config.Env)
	for _, e := range c.Env {
		if e.ValueFrom != nil { // the node's name is all that is asked for
			e.Value = "n1"
		}
		environ = append(environ, e.Name+"="+e.Value)
	}
	security := c.SecurityContext
	privileged := is(security.Privileged)
	capabilities := capabilitiesOf(security)
	user := object{"uid": number(security.RunAsUser), "gid": number(security.RunAsGroup)}
	if p.form.pod.SecurityContext != nil && p.form.pod.SecurityContext.FSGroup != nil {
		user["additionalGids"] = []int64{*p.form.pod.SecurityContext.FSGroup}
	}
	held := capabilities
	if number(security.RunAsUser) != 0 {
		held = nil
	}
	linux := object{
		"namespaces": []object{{"type": "pid"}, {"type": "ipc"}, {"type": "mount"}},
		"resources":  object{"devices": []object{{"allow": privileged, "access": "rwm"}}},
	}
	if !privileged {
		linux["maskedPaths"] = []string{"/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"}
		linux["readonlyPaths"] = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	}
	if security.SeccompProfile != nil && security.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault {
		linux["seccomp"] = p.seccomp(capabilities)
	}
	return object{
		"ociVersion": "1.0.2",
		"process": object{
			"user": user, "args": words, "env": environ, "cwd": "/",
			"noNewPrivileges": security.AllowPrivilegeEscalation != nil && !*security.AllowPrivilegeEscalation,
			"capabilities":    object{"bounding": capabilities, "effective": held, "permitted": held},
		},
		"root":   object{"path": root, "readonly": is(security.ReadOnlyRootFilesystem)},
		"mounts": p.mounts(c, privileged),
		"linux":  linux,
	}
}

func is(b *bool) bool { return b != nil && *b }

func number(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// all are the capabilities that this process may give.
func all() []string {
	names := strings.Fields("CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE")
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "CapBnd:")
	var bits uint64
	_, _ = fmt.Sscanf(strings.TrimSpace(rest), "%x", &bits)
	var given []string
	for i, name := range names {
		if bits&(1<<i) != 0 {
			given = append(given, "CAP_"+name)
		}
	}
	return given
}

func capabilitiesOf(security *corev1.SecurityContext) []string {
	if is(security.Privileged) {
		return all()
	}
	var list []string
	if c := security.Capabilities; c != nil {
		for _, name := range c.Add {
			list = append(list, "CAP_"+string(name))
		}
	}
	return list
}

// mounts are a container's: the kernel's file systems, and the pod's volumes.
func (p *pod) mounts(c corev1.Container, privileged bool) []object {
	p.Helper()
	writable := "ro"
	if privileged {
		writable = "rw"
	}
	list := []object{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
		{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": []string{"nosuid", "noexec", "nodev", writable}},
	}
	for _, m := range c.VolumeMounts {
		options := []string{"rbind", "rprivate"}
		if m.ReadOnly {
			options = append(options, "ro")
		}
		list = append(list, object{"destination": m.MountPath, "type": "bind", "source": p.volume(m.Name), "options": options})
	}
	return list
}

// seccomp is what Debian's containers may ask of the kernel, with these capabilities.
func (p *pod) seccomp(capabilities []string) object {
	p.Helper()
	text, err := os.ReadFile("/usr/share/containers/seccomp.json")
	if err != nil {
		p.Skip("needs the system calls that containers may do: apt-get install golang-github-containers-common: ", err)
	}
	type when struct {
		Caps, Arches []string
	}
	var profile struct {
		DefaultAction   string
		DefaultErrnoRet *uint
		Syscalls        []struct {
			Names              []string
			Action             string
			Args               []object
			ErrnoRet           *uint
			Includes, Excludes when
		}
	}
	if err := json.Unmarshal(text, &profile); err != nil {
		p.Fatal(err)
	}
	has := func(c string) bool { return slices.Contains(capabilities, c) }
	var calls []object
	for _, s := range profile.Syscalls {
		if len(s.Includes.Arches) > 0 && !slices.Contains(s.Includes.Arches, runtime.GOARCH) || slices.Contains(s.Excludes.Arches, runtime.GOARCH) ||
			slices.ContainsFunc(s.Includes.Caps, func(c string) bool { return !has(c) }) || slices.ContainsFunc(s.Excludes.Caps, has) {
			continue
		}
		call := object{"names": s.Names, "action": s.Action}
		if len(s.Args) > 0 {
			call["args"] = s.Args
		}
		if s.ErrnoRet != nil {
			call["errnoRet"] = *s.ErrnoRet
		}
		calls = append(calls, call)
	}
	return object{"defaultAction": profile.DefaultAction, "defaultErrnoRet": profile.DefaultErrnoRet, "syscalls": calls}
}
