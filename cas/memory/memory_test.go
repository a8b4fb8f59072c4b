package memory_test

import (
	"testing"

	"leafproof/cas"
	"leafproof/cas/castest"
	"leafproof/cas/memory"
)

func TestBackend(t *testing.T) {
	castest.Run(t, func(*testing.T) cas.Backend { return memory.New() })
}
