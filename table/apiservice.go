package table

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiServiceObject is the part of an APIService that is shown. The type itself is in a
// module that a library should not need.
type apiServiceObject struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Service *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"service"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

var apiService = kindOf(apiServiceCells, always("Name", "Service", "Available", "Age"))

func apiServiceCells(a *apiServiceObject, now time.Time) []any {
	service := "Local"
	if s := a.Spec.Service; s != nil {
		service = s.Namespace + "/" + s.Name
	}
	return []any{a.Name, service, availability(a.Status.Conditions), age(a.CreationTimestamp, now)}
}

// availability returns whether an API is available and, if it is not, why.
func availability(conditions []metav1.Condition) string {
	for _, c := range conditions {
		switch {
		case c.Type != "Available":
		case c.Status == metav1.ConditionTrue || c.Reason == "":
			return string(c.Status)
		default:
			return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		}
	}
	return string(metav1.ConditionUnknown)
}
