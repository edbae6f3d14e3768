package selection

import (
	"time"

	"github.com/spf13/cobra"
)

// Parts returns the top-level fields of an object that a query reads; nil means all.
func Parts(where, sortBy string, groupBy ...string) ([]string, error) {
	var s Sieve
	text := &SieveFlags{where: where, sortBy: sortBy, groupBy: groupBy}
	err := s.Complete(&cobra.Command{}, text, &Filter{}, time.Time{})
	if err != nil {
		return nil, err
	}
	names, all := s.parts()
	if all {
		return nil, nil
	}
	return append([]string{}, names...), nil
}
