--- cases: many small checks inside one `it`. Each counts in the closing line; the first failures are shown, not only the first.
local M = {passed = 0, failed = 0}

local max_shown = 20

--- Starts a table of cases: `local check = cases.begin()`, `check(name, fn, ...)` each, `check.done()` last.
function M.begin()
  local failures, passed = {}, 0
  local table_of_cases = {}
  function table_of_cases.done()
    M.passed = M.passed + passed
    M.failed = M.failed + #failures
    if #failures == 0 then return end
    local shown = {}
    for i = 1, math.min(#failures, max_shown) do shown[i] = failures[i] end
    if #failures > max_shown then shown[#shown + 1] = ("... and %d more"):format(#failures - max_shown) end
    error(("%d of %d cases failed:\n%s"):format(#failures, passed + #failures, table.concat(shown, "\n")), 2)
  end
  return setmetatable(table_of_cases, {
    __call = function(_, name, fn, ...)
      local ok, err = pcall(fn, ...)
      if ok then passed = passed + 1 else failures[#failures + 1] = ("  %s: %s"):format(name, tostring(err)) end
      return ok
    end,
  })
end

return M
