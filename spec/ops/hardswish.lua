--- hardswish: sample data.
local samples = require "support.samples"

return samples.unary {range = {-5, 5}, avoid = {-3, 3}, expect = {{{x = {-4, 0, 3, 4}}, {0, 0, 3, 4}}}}
