--- log1p: sample data.
local samples = require "support.samples"

return samples.unary {
  range = {-0.6, 3}, ints = {0, 9}, smooth = true, expect = {{{x = {0, 1e-12}}, {0, 1e-12}}},
}
