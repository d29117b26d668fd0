// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// check returns the reasons for which an API server would refuse an object, if dataplanes depend on them, and the
// fields for which an API server would choose a value. It does not check external addresses, source ranges, endpoints
// and ports: package reach reports and omits those that cannot be used, and sets defaults.
func check(o metav1.Object) (bad field.ErrorList) {
	isName := validation.NameIsDNSSubdomain
	switch v := o.(type) {
	case *corev1.Service:
		isName = validation.NameIsDNSLabel
		bad = checkService(v)
	case *discoveryv1.EndpointSlice:
		bad = checkSlice(v)
	}
	return append(bad, validation.ValidateObjectMetaAccessor(o, o.GetNamespace() != "", isName, field.NewPath("metadata"))...)
}

func checkService(svc *corev1.Service) (bad field.ErrorList) {
	spec, at := &svc.Spec, field.NewPath("spec")
	if spec.ClusterIP == "" && len(spec.ClusterIPs) > 0 {
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	bad = slices.Concat(
		oneOf(at.Child("type"), spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName),
		oneOf(at.Child("sessionAffinity"), spec.SessionAffinity, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP),
		oneOf(at.Child("externalTrafficPolicy"), spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal),
		oneOf(at.Child("internalTrafficPolicy"), ptr.Deref(spec.InternalTrafficPolicy, ""), corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal))
	if spec.Type == corev1.ServiceTypeExternalName || spec.ClusterIP == corev1.ClusterIPNone {
		return bad // never served
	}
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		bad = append(bad, inRange(at.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), *c.ClientIP.TimeoutSeconds, 1, 24*60*60)...)
	}
	return slices.Concat(bad, inRange(at.Child("healthCheckNodePort"), spec.HealthCheckNodePort, 0, 65535),
		checkClusterIPs(spec, at), checkPorts(spec, at.Child("ports")))
}

func checkClusterIPs(spec *corev1.ServiceSpec, at *field.Path) (bad field.ErrorList) {
	if spec.ClusterIP == "" {
		return field.ErrorList{field.Required(at.Child("clusterIP"), "must be set in a file: only an API server chooses an address")}
	} else if len(spec.ClusterIPs) == 0 {
		return utilvalidation.IsValidIPForLegacyField(at.Child("clusterIP"), spec.ClusterIP, true, nil)
	} else if spec.ClusterIPs[0] != spec.ClusterIP {
		bad = append(bad, field.Invalid(at.Child("clusterIPs").Index(0), spec.ClusterIPs[0], "must be spec.clusterIP, "+spec.ClusterIP))
	}
	families := make(map[bool]bool)
	for i, text := range spec.ClusterIPs {
		at, is6 := at.Child("clusterIPs").Index(i), strings.Contains(text, ":")
		if bad = append(bad, utilvalidation.IsValidIPForLegacyField(at, text, true, nil)...); families[is6] {
			bad = append(bad, field.Invalid(at, text, "must be of another IP family than the first one"))
		}
		families[is6] = true
	}
	return bad
}

func checkPorts(spec *corev1.ServiceSpec, at *field.Path) (bad field.ErrorList) {
	if len(spec.Ports) == 0 {
		bad = append(bad, field.Required(at, ""))
	}
	seen := make(map[string]bool)
	for i := range spec.Ports {
		p, at := &spec.Ports[i], at.Index(i)
		protocol := cmp.Or(p.Protocol, corev1.ProtocolTCP)
		bad = append(bad, oneOf(at.Child("protocol"), p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
		bad = append(bad, inRange(at.Child("port"), p.Port, 1, 65535)...)
		bad = append(bad, inRange(at.Child("nodePort"), p.NodePort, 0, 65535)...)
		switch {
		case p.NodePort == 0 && spec.Type == corev1.ServiceTypeNodePort:
			bad = append(bad, field.Required(at.Child("nodePort"), "must be set in a file: only an API server chooses a port"))
		case p.NodePort != 0 && cmp.Or(spec.Type, corev1.ServiceTypeClusterIP) == corev1.ServiceTypeClusterIP:
			bad = append(bad, field.Forbidden(at.Child("nodePort"), "only for the types NodePort and LoadBalancer"))
		}
		if p.Name == "" && len(spec.Ports) > 1 {
			bad = append(bad, field.Required(at.Child("name"), "each of several ports needs one"))
		} else if p.Name != "" {
			for _, why := range utilvalidation.IsDNS1123Label(p.Name) {
				bad = append(bad, field.Invalid(at.Child("name"), p.Name, why))
			}
		}
		for of, value := range map[string]string{"name": p.Name, "port": fmt.Sprintf("%d/%s", p.Port, protocol), "nodePort": fmt.Sprintf("%d/%s", p.NodePort, protocol)} {
			if given := of == "port" || of == "name" && p.Name != "" || of == "nodePort" && p.NodePort != 0; given && seen[of+value] {
				bad = append(bad, field.Duplicate(at.Child(of), value))
			}
			seen[of+value] = true
		}
	}
	return bad
}

func checkSlice(slice *discoveryv1.EndpointSlice) field.ErrorList {
	at := field.NewPath("addressType")
	if slice.AddressType == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return oneOf(at, slice.AddressType, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
}

func oneOf[T ~string](at *field.Path, value T, may ...T) field.ErrorList {
	if value == "" || slices.Contains(may, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, may)}
}

func inRange(at *field.Path, value int32, least, most int) (bad field.ErrorList) {
	for _, why := range utilvalidation.IsInRange(int(value), least, most) {
		bad = append(bad, field.Invalid(at, value, why))
	}
	return bad
}
