--- hypot: sample data.
local samples = require "support.samples"

return samples.binary {
  a = {range = {0.3, 2}}, b = {range = {0.3, 2}}, smooth = true,
  expect = {{{a = {3, 5}, b = {4, -12}}, {5, 13}}},
}
