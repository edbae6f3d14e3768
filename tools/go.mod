module github.com/informctl/informctl/tools

go 1.26.0
