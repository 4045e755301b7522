--- acosh: sample data.
local samples = require "support.samples"

return samples.unary {
  range = {1.3, 5}, ints = {1, 9}, smooth = true, expect = {{{x = {1, 2}}, {0, 1.3169578969248166}}},
}
