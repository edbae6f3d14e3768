package selection

import (
	"time"

	"github.com/spf13/cobra"
)

// Parts returns the top-level fields of an object that a query reads; nil means all.
func Parts(where, sortBy string) ([]string, error) {
	var s Sieve
	err := s.Complete(&cobra.Command{}, &SieveFlags{where: where, sortBy: sortBy}, &Filter{}, time.Time{})
	if err != nil {
		return nil, err
	}
	names, all := s.parts()
	if all {
		return nil, nil
	}
	return append([]string{}, names...), nil
}
