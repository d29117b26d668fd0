// SPDX-License-Identifier: Apache-2.0

package beside

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Endpoints here, elsewhere, and both.
func near() []end   { return []end{on("near0", 8080)} }
func far() []end    { return []end{on("far0", 8080)} }
func spread() []end { return []end{on("near0", 8080), on("near1", 8080), on("far0", 8080)} }

// zoo has one of every kind of Service.
func zoo() []thing {
	unnamed := func(t *thing) {
		t.service.Spec.Ports = t.service.Spec.Ports[:1]
		t.service.Spec.Ports[0].Name = ""
	}
	more := func(t *thing) {
		t.service.Spec.Ports = append(t.service.Spec.Ports,
			corev1.ServicePort{Name: "more", Protocol: corev1.ProtocolTCP, Port: 8443, TargetPort: intstr.FromInt(8080)},
			corev1.ServicePort{Name: "more-udp", Protocol: corev1.ProtocolUDP, Port: 8443, TargetPort: intstr.FromInt(8080)})
	}
	publish := func(t *thing) { t.service.Spec.PublishNotReadyAddresses = true }
	return []thing{
		newThing(0, "plain", spread()),
		newThing(1, "nobody", nil, nodePorts(30010), externalIPs("198.51.100.1", "2001:db8:e::1")),
		newThing(2, "internal-local", spread(), internalLocal),
		newThing(3, "internal-local-far", far(), internalLocal, nodePorts(30030)),
		newThing(4, "node-port", spread(), nodePorts(30040)),
		newThing(5, "node-port-local", spread(), samePort(30050), externalLocal),
		newThing(6, "node-port-local-far", far(), nodePorts(30060), externalLocal),
		newThing(7, "load-balancer", spread(), loadBalancer("198.51.100.7", "2001:db8:e::7"), nodePorts(30070)),
		newThing(8, "load-balancer-local", spread(), loadBalancer("198.51.100.8", "2001:db8:e::8"), nodePorts(30080), externalLocal, healthPort(30089)),
		newThing(9, "load-balancer-local-far", far(), loadBalancer("198.51.100.9", "2001:db8:e::9"), externalLocal, healthPort(30099)),
		newThing(10, "ranges", spread(), loadBalancer("198.51.100.10", "2001:db8:e::10"), sources("198.18.0.0/16", "2001:db8:c::/48"), nodePorts(30100)),
		newThing(11, "ranges-node", spread(), loadBalancer("198.51.100.11", "2001:db8:e::11"), sources("192.0.2.10/32", "2001:db8::10/128")),
		newThing(12, "ranges-six", spread(), loadBalancer("198.51.100.12", "2001:db8:e::12"), sources("2001:db8:c::/48")),
		newThing(13, "ranges-overlap", near(), loadBalancer("198.51.100.13", "2001:db8:e::13"), sources("198.18.0.0/16", "198.18.0.7/32", "10.244.1.0/24"), externalLocal, healthPort(30139)),
		newThing(14, "ranges-nobody", nil, loadBalancer("198.51.100.14", "2001:db8:e::14"), sources("198.18.0.0/16")),
		newThing(15, "proxied", near(), loadBalancer("proxy:198.51.100.15", "proxy:2001:db8:e::15", "lb.example.org"), nodePorts(30150)),
		newThing(16, "external", spread(), externalIPs("198.51.100.16", "2001:db8:e::16")),
		newThing(17, "external-local", spread(), externalIPs("198.51.100.17", "2001:db8:e::17"), nodePorts(30170), externalLocal),
		newThing(18, "external-local-far", far(), externalIPs("198.51.100.18", "2001:db8:e::18"), nodePorts(30180), externalLocal),
		newThing(19, "both-local", spread(), nodePorts(30190), externalLocal, internalLocal),
		newThing(20, "sticky", spread(), sticky(600), nodePorts(30200)),
		newThing(21, "terminating", []end{on("near0", 8080).is(false, true, true), on("far0", 8080).is(false, true, true), on("near1", 8080).is(false, false, true)}, nodePorts(30210), externalLocal),
		newThing(22, "some-terminating", []end{on("near0", 8080).is(false, true, true), on("far0", 8080)}, nodePorts(30220), externalLocal),
		newThing(23, "not-ready", []end{on("near0", 8080).is(false, true, false), on("far0", 8080).is(false, false, false)}, nodePorts(30230)),
		newThing(24, "published", []end{on("near0", 8080).is(true, false, true), on("far0", 8080)}, publish),
		newThing(25, "host-network", []end{on("node", 9090), on("other", 9090)}, nodePorts(30250)),
		newThing(26, "host-network-local", []end{on("node", 9090), on("other", 9090)}, nodePorts(30260), externalLocal, internalLocal),
		newThing(27, "two-ports", []end{on("near0", 8080), on("near0", 8081), on("far0", 8081)}, nodePorts(30270)),
		newThing(28, "twice", []end{on("near0", 8080), on("near0", 8080).in(1), on("far0", 8080).in(1)}),
		newThing(29, "unnamed-port", spread(), unnamed, nodePorts(30290)),
		newThing(30, "many-ports", spread(), more, nodePorts(30300)),
		newThing(31, "four", spread(), family(0), nodePorts(30310)),
		newThing(32, "six", spread(), family(1), nodePorts(30320)),
		newThing(33, "near-zone", []end{on("near0", 8080).zone("zone-a"), on("far0", 8080).zone("zone-b")}, nodePorts(30330)),
		newThing(34, "node-hints", []end{on("near0", 8080).zone("zone-a").forNode(here), on("near1", 8080).zone("zone-a").forNode(there), on("far0", 8080).zone("zone-a").forNode(there)}),
		newThing(35, "one-hint-missing", []end{on("near0", 8080).zone("zone-a"), on("far0", 8080)}),
		newThing(36, "another-proxy", near(), label("service.kubernetes.io/service-proxy-name", "other"), nodePorts(30360)),
		newThing(37, "node-as-external", near(), externalIPs("192.0.2.10", "2001:db8::10")),
	}
}

// edges are Services where two meanings meet: an address that is also the node's, one
// that two Services share, a caller that is also an endpoint.
func edges() []thing {
	load := func(i int) edit { return loadBalancer(balancerAddrs[i][0].String(), balancerAddrs[i][1].String()) }
	class := func(t *thing) { name := "example.com/lb"; t.service.Spec.LoadBalancerClass = &name }
	port := func(number int32) edit {
		return func(t *thing) {
			for i := range t.service.Spec.Ports {
				t.service.Spec.Ports[i].Port = number
			}
		}
	}
	shared := loadBalancer("198.51.100.60", "2001:db8:e::60")
	return []thing{
		newThing(50, "bound", spread(), load(0), nodePorts(30500)),
		newThing(51, "bound-node-allowed", spread(), load(1), sources("192.0.2.10/32", "2001:db8::10/128")),
		newThing(52, "bound-others-allowed", spread(), load(2), sources("198.18.0.0/16", "2001:db8:c::/48"), nodePorts(30520)),
		newThing(53, "bound-local", spread(), load(3), externalLocal, healthPort(30539)),
		newThing(54, "bound-local-far", far(), load(0), port(81), externalLocal, healthPort(30549)),
		newThing(55, "bound-nobody", nil, load(0), port(82)),
		newThing(56, "at-the-node", spread(), loadBalancer("192.0.2.10", "2001:db8::10"), class),
		newThing(57, "at-the-other-node", spread(), loadBalancer("192.0.2.11", "2001:db8::11")),
		newThing(58, "external-at-the-other-node", spread(), externalIPs("192.0.2.11", "2001:db8::11"), port(81)),
		newThing(59, "range-of-itself", spread(), loadBalancer("198.51.100.59", "2001:db8:e::59"), sources("198.51.100.59/32", "2001:db8:e::59/128")),
		newThing(60, "shared", spread(), shared, sources("198.18.0.0/16", "2001:db8:c::/48")),
		newThing(61, "shared-too", spread(), shared, port(81)),
		newThing(62, "shared-external", near(), externalIPs("198.51.100.60", "2001:db8:e::60"), port(82)),
		newThing(63, "twice", near(), loadBalancer("198.51.100.63", "2001:db8:e::63"), externalIPs("198.51.100.63", "2001:db8:e::63")),
		newThing(64, "sticky-local", spread(), nodePorts(30640), sticky(600), externalLocal, internalLocal),
		newThing(65, "sticky-ranges", spread(), loadBalancer("198.51.100.65", "2001:db8:e::65"), sticky(600), sources("10.244.0.0/16", "192.0.2.0/24", "fd00:10:244::/48")),
		newThing(66, "only-itself", near(), loadBalancer("198.51.100.66", "2001:db8:e::66"), nodePorts(30660), externalLocal, internalLocal, healthPort(30669)),
		newThing(67, "only-the-node", []end{on("node", 9090)}, loadBalancer("198.51.100.67", "2001:db8:e::67"), nodePorts(30670), externalLocal, healthPort(30679)),
		newThing(69, "deaf", []end{on("near0", 7777)}, nodePorts(30690)),
		newThing(70, "deaf-elsewhere", []end{on("far0", 7777)}, loadBalancer("198.51.100.70", "2001:db8:e::70"), externalLocal, healthPort(30709)),
		newThing(71, "deaf-here", []end{on("node", 7777), on("node", 7778)}, nodePorts(30710), sticky(600)),
		newThing(72, "only-itself-sticky", near(), nodePorts(30720), sticky(600)),
		newThing(73, "nobody-local", nil, loadBalancer("198.51.100.73", "2001:db8:e::73"), nodePorts(30730), externalIPs("198.51.100.74", "2001:db8:e::74"), externalLocal, internalLocal, healthPort(30739)),
		newThing(74, "ending-elsewhere", []end{on("far0", 8080).is(false, true, true)}, nodePorts(30740), externalLocal),
		newThing(75, "proxied-ranges", near(), loadBalancer("proxy:198.51.100.75", "proxy:2001:db8:e::75"), sources("198.18.0.0/16", "2001:db8:c::/48"), nodePorts(30750)),
		newThing(68, "only-the-other-node", []end{on("other", 9090)}, loadBalancer("198.51.100.68", "2001:db8:e::68"), nodePorts(30680)),
	}
}
