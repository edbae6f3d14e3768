package cmdutil

// NoValue is printed as the value of objects without one.
const NoValue = "<none>"

// OrDash returns what a cell of a table shows of a text that may be empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
