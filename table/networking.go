package table

import (
	"fmt"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var ingress = kindOf(ingressCells, always("Name", "Class", "Hosts", "Address", "Ports", "Age"))

func ingressCells(i *networkingv1.Ingress, now time.Time) []any {
	ports := "80"
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	return []any{
		i.Name, pointed(i.Spec.IngressClassName, none), ingressHosts(i), ingressAddress(i), ports, age(i.CreationTimestamp, now),
	}
}

// mostHosts is the number of hosts that a cell holds.
const mostHosts = 3

func ingressHosts(i *networkingv1.Ingress) string {
	var hosts []string
	for _, rule := range i.Spec.Rules {
		if len(hosts) == mostHosts {
			// As the server counts them: rules without a host are among them.
			return fmt.Sprintf("%s + %d more...", strings.Join(hosts, ","), len(i.Spec.Rules)-mostHosts)
		}
		if rule.Host != "" {
			hosts = append(hosts, rule.Host)
		}
	}
	return or(strings.Join(hosts, ","), "*")
}

func ingressAddress(i *networkingv1.Ingress) string {
	var addresses []string
	for _, at := range i.Status.LoadBalancer.Ingress {
		addresses = append(addresses, or(at.IP, at.Hostname))
	}
	slices.Sort(addresses)
	return strings.Join(slices.Compact(addresses), ",")
}

var networkPolicy = kindOf(networkPolicyCells, always("Name", "Pod-Selector", "Age"))

func networkPolicyCells(p *networkingv1.NetworkPolicy, now time.Time) []any {
	return []any{p.Name, selector(&p.Spec.PodSelector), age(p.CreationTimestamp, now)}
}

var ingressClass = kindOf(ingressClassCells, always("Name", "Controller", "Parameters", "Age"))

func ingressClassCells(c *networkingv1.IngressClass, now time.Time) []any {
	name, parameters := c.Name, none
	if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
		name += " (default)"
	}
	if p := c.Spec.Parameters; p != nil {
		parameters = p.Kind
		if p.APIGroup != nil {
			parameters += "." + *p.APIGroup
		}
		parameters += "/" + p.Name
	}
	return []any{name, c.Spec.Controller, parameters, age(c.CreationTimestamp, now)}
}

var serviceCIDR = kindOf(serviceCIDRCells, always("Name", "CIDRs", "Age"))

func serviceCIDRCells(c *networkingv1.ServiceCIDR, now time.Time) []any {
	return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), age(c.CreationTimestamp, now)}
}

// The server sends an age that has no column, so that it is not printed.
var ipAddress = kindOf(ipAddressCells, always("Name", "ParentRef"))

func ipAddressCells(a *networkingv1.IPAddress, now time.Time) []any {
	parent := none
	if ref := a.Spec.ParentRef; ref != nil {
		of := schema.GroupResource{Group: ref.Group, Resource: ref.Resource}
		parent = strings.ToLower(of.String()) + "/"
		if ref.Namespace != "" {
			parent += ref.Namespace + "/"
		}
		parent += ref.Name
	}
	return []any{a.Name, parent, age(a.CreationTimestamp, now)}
}
