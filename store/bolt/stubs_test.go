package bolt_test

func childStage(args []string) error { return nil }
func childLoad(args []string) error  { return nil }
