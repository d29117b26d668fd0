// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// measured is the sum and the count of one of kube-proxy's histograms, of IPv4.
func measured(url, metric string) (sum time.Duration, count int) {
	all := scrape(url, metric+"_(sum|count)")
	return time.Duration(all["sum"] * float64(time.Second)), int(all["count"])
}

// gauge is one of kube-proxy's gauges; as long as nothing answers, it is -1.
func gauge(url, metric string) float64 {
	if value, ok := scrape(url, metric+"()")[""]; ok {
		return value
	}
	return -1
}

// synced reports whether a kube-proxy with these metrics has written its rules of both families. It writes
// nothing more until something changes.
func synced(url string) bool {
	at := scrape(url, `kubeproxy_sync_proxy_rules_last_timestamp_seconds\{ip_family="(IPv\d)"\}`)
	return at["IPv4"] > 0 && at["IPv6"] > 0
}

// scrape are the metrics, of IPv4 or of no family, whose names the pattern describes, by what its group
// matches.
func scrape(url, pattern string) map[string]float64 {
	answer, err := http.Get(url)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	all := make(map[string]float64)
	for _, m := range regexp.MustCompile(`(?m)^`+pattern+`(?:\{ip_family="IPv4"\})? (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		all[m[1]], _ = strconv.ParseFloat(m[2], 64)
	}
	return all
}

// usedByUs is the processors' time that this process and its children took.
func usedByUs() time.Duration {
	var sum time.Duration
	for _, of := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		_ = syscall.Getrusage(of, &u) // it cannot fail for these
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

// usedBy is the processors' time that a process and its children took, in ticks of
// a hundredth of a second.
func usedBy(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	ticks := 0
	for _, i := range []int{11, 12, 13, 14} {
		if i < len(fields) {
			n, _ := strconv.Atoi(fields[i])
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// rss is how much memory a process has, in KiB.
func rss(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	m := regexp.MustCompile(`VmRSS:\s+(\d+)`).FindSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

// compare is the table that is printed.
func compare(ours, theirs result, empty map[string][2]time.Duration) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| what | pointsman | kube-proxy | ratio |\n|---|---:|---:|---:|")
	row := func(what string, a, c time.Duration) {
		fmt.Fprintf(&b, "| %s | %s | %s | %.1f× |\n", what, short(a), short(c), float64(c)/float64(max(a, 1)))
	}
	load := "first full load"
	if theirs.steps > 0 {
		load += fmt.Sprintf(" (kube-proxy's in %d steps: at once it does not get done)", theirs.steps+1)
	}
	row(load, ours.full, theirs.full)
	row("… of a processor", ours.fullCPU, theirs.fullCPU)
	row("one endpoint changes", ours.one, theirs.one)
	row("… of a processor", ours.oneCPU, theirs.oneCPU)
	fmt.Fprintf(&b, "| … bytes handed to restore | %d | %d | %.0f× |\n", ours.bytes, theirs.bytes, float64(theirs.bytes)/float64(max(1, ours.bytes)))
	fmt.Fprintf(&b, "| resident memory of the process | | %d MiB | |\n", theirs.rss>>10)
	fmt.Fprintf(&b, "\nA new connection, p50 / p99 (on empty tables: %s)\n\n| to | pointsman | kube-proxy |\n|---|---:|---:|\n", pair(empty["no Service"]))
	for _, to := range []string{"the first", "the middle one", "the last", "no Service"} {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", to, pair(ours.latency[to]), pair(theirs.latency[to]))
	}
	return b.String()
}

func pair(p [2]time.Duration) string { return short(p[0]) + " / " + short(p[1]) }

func short(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
