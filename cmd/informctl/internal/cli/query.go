package cli

import "github.com/spf13/cobra"

func newQueryCommand(e env) *cobra.Command {
	o := &readOptions{env: e}
	cmd := &cobra.Command{
		Use:   "query [RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME...]",
		Short: "Print the objects that indexes, labels or names select",
		Long: describe(`Print the objects that indexes, labels or names select.

Only objects that match are read. Every --index and --selector must match; info
lists the indexes of each resource. The output is that of dump: a List even if
a NAME is given, an empty one where nothing matches.`),
		Example: `  informctl query pods --index namespace=default --index label:app=web
  informctl query pods/web-1 -n default -o yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, args); err != nil {
				return err
			}
			o.format.kinds = len(o.wanted) > 1 || o.wanted[0].resource == ""
			return runRead(o)
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringArrayVar(&o.indexes, "index", nil, "Only objects that this index has under this value, as NAME=VALUE; repeatable.")
	return cmd
}
