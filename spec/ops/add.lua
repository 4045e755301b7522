--- add: sample data.
local samples = require "support.samples"

return samples.binary {
  attrs = {{alpha = 2}, {alpha = -3}}, smooth = true,
  expect = {{{a = {1, 2}, b = {10, 20}, alpha = 2}, {21, 42}}},
}
