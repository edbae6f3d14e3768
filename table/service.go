package table

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var service = kindOf(serviceCells,
	always("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age"),
	wide("Selector"))

func serviceCells(s *corev1.Service, now time.Time) []any {
	clusterIP := s.Spec.ClusterIP
	if len(s.Spec.ClusterIPs) > 0 {
		clusterIP = s.Spec.ClusterIPs[0]
	}
	return []any{
		s.Name, string(s.Spec.Type), or(clusterIP, none), externalIP(s), servicePorts(s), age(s.CreationTimestamp, now),
		labelled(s.Spec.Selector),
	}
}

// externalIP returns where a service is reached from outside.
func externalIP(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return list(s.Spec.ExternalIPs)
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var addresses []string
		for _, i := range s.Status.LoadBalancer.Ingress {
			addresses = append(addresses, or(i.IP, i.Hostname))
		}
		slices.Sort(addresses)
		addresses = slices.Compact(addresses)
		if all := slices.Concat(addresses, s.Spec.ExternalIPs); len(all) > 0 {
			return list(all)
		}
		return "<pending>"
	}
	return unknown
}

func servicePorts(s *corev1.Service) string {
	var ports []string
	for _, p := range s.Spec.Ports {
		if p.NodePort > 0 {
			ports = append(ports, fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol))
		} else {
			ports = append(ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
	}
	return list(ports)
}

var endpoints = kindOf(endpointsCells, always("Name", "Endpoints", "Age"))

func endpointsCells(e *corev1.Endpoints, now time.Time) []any { //nolint:staticcheck // the kind is still served
	return []any{e.Name, endpointsText(e), age(e.CreationTimestamp, now)}
}

// mostEndpoints is the number of addresses, or ports, that a cell holds.
const mostEndpoints = 3

func endpointsText(e *corev1.Endpoints) string { //nolint:staticcheck // the kind is still served
	if len(e.Subsets) == 0 {
		return none
	}
	var all []string
	for _, subset := range e.Subsets {
		for _, port := range subset.Ports {
			for _, address := range subset.Addresses {
				all = append(all, net.JoinHostPort(address.IP, strconv.Itoa(int(port.Port))))
			}
		}
		if len(subset.Ports) == 0 {
			for _, address := range subset.Addresses {
				all = append(all, address.IP)
			}
		}
	}
	return shortList(all, mostEndpoints)
}
