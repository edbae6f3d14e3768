package table

import (
	"strconv"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
)

var endpointSlice = kindOf(endpointSliceCells, always("Name", "AddressType", "Ports", "Endpoints", "Age"))

func endpointSliceCells(s *discoveryv1.EndpointSlice, now time.Time) []any {
	var ports, addresses []string
	for _, p := range s.Ports {
		if p.Port != nil {
			ports = append(ports, strconv.Itoa(int(*p.Port)))
		} else {
			ports = append(ports, pointed(p.Name, ""))
		}
	}
	for _, e := range s.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	return []any{
		s.Name, string(s.AddressType), or(shortList(ports, mostEndpoints), unset), or(shortList(addresses, mostEndpoints), unset),
		age(s.CreationTimestamp, now),
	}
}
