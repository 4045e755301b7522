--- group_norm: sample data.
return {
  gen = {x = {distinct = true}},
  calls = {
    {x = {2, 4, 3}, num_groups = 2}, {x = {2, 4, 3}, num_groups = 4, weight = {4}, bias = {4}},
    {x = {2, 4, 2, 2}, num_groups = 1, weight = {4}}, {x = {3, 4}, num_groups = 2, bias = {4}},
  },
  empty = {{x = {0, 4, 3}, num_groups = 2, weight = {4}}}, smooth = true, ulps = 32, tied = false,
  large = {x = {8, 12, 1051}, num_groups = 3, weight = {12}, bias = {12}},
  expect = {{{x = {{1, 3}}, num_groups = 1, eps = 0}, {{-1, 1}}}},
}
