--- atan2: sample data.
local samples = require "support.samples"

return samples.binary {a = {range = {0.3, 2}}, b = {range = {0.3, 2}}, smooth = true,
  expect = {{{a = {1, 1}, b = {1, -1}}, {0.7853981633974483, 2.356194490192345}}}}
