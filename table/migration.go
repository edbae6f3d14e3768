package table

import (
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The server's column of the name does not have the format of one.
var storageVersionMigration = kindOf(storageVersionMigrationCells,
	ofFormat("", always("Name")), always("Resource", "Status"))

func storageVersionMigrationCells(m *migrationv1.StorageVersionMigration, _ time.Time) []any {
	status := "Unknown"
	for _, c := range m.Status.Conditions {
		switch migrationv1.MigrationConditionType(c.Type) {
		case migrationv1.MigrationRunning, migrationv1.MigrationSucceeded, migrationv1.MigrationFailed:
			if c.Status == metav1.ConditionTrue {
				status = c.Type
			}
		}
	}
	return []any{m.Name, m.Spec.Resource.String(), status}
}
