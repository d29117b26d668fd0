// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"testing"

	"github.com/pointsman/pointsman/test/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m) }
