// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/pointsman/pointsman/test/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m) }
