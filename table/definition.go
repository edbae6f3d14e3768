package table

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// customResourceDefinition is the part of a definition that is shown. The type itself is
// in a module that a library should not need.
type customResourceDefinition struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Group    string              `json:"group"`
		Scope    string              `json:"scope"`
		Names    definedNames        `json:"names"`
		Versions []definitionVersion `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// definedNames are the names of a custom resource.
type definedNames struct {
	Kind       string   `json:"kind"`
	ShortNames []string `json:"shortNames"`
}

// definitionVersion is one version of a custom resource.
type definitionVersion struct {
	Name    string          `json:"name"`
	Served  bool            `json:"served"`
	Storage bool            `json:"storage"`
	Columns []printerColumn `json:"additionalPrinterColumns"`
}

var definition = kindOf(definitionCells,
	always("Name", "Scope", "Versions"), ofType("date", always("Created At")),
	wide("Group", "Kind", "ShortNames"), ofType("boolean", wide("Established")))

func definitionCells(d *customResourceDefinition, _ time.Time) []any {
	var versions []string
	for _, v := range d.Spec.Versions {
		switch {
		case !v.Served:
		case v.Storage:
			versions = append(versions, v.Name+"(storage)")
		default:
			versions = append(versions, v.Name)
		}
	}
	established := slices.ContainsFunc(d.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == "Established" && c.Status == metav1.ConditionTrue
	})
	return []any{
		d.Name, d.Spec.Scope, strings.Join(versions, ","), createdAt(d.CreationTimestamp),
		d.Spec.Group, d.Spec.Names.Kind, strings.Join(d.Spec.Names.ShortNames, ","), established,
	}
}
