--- report: busted's output handler. A line a file, failures with file and line, and "N passed, N failed" at the end.
local cases = require "support.cases"
local live_memory = require "support.live_memory"
local strict = require "support.strict"

local M = {}

local passed, failed, skipped = 0, 0, 0
local file_start -- {passed, failed, seconds, memory} at the start of the file that runs

local function totals()
  return passed + cases.passed, failed + cases.failed
end

local function full_name(busted, element)
  local names = {}
  while element and element.descriptor ~= "file" and element.descriptor ~= "suite" do
    table.insert(names, 1, tostring(element.name or element.descriptor))
    element = busted.parent(element)
  end
  return table.concat(names, ", ")
end

local function indent(text)
  return "    " .. tostring(text):gsub("\n", "\n    ")
end

--- Counts a failure that belongs to no test: busted itself stopped.
function M.count_failure()
  failed = failed + 1
end

--- Prints the closing line; false when anything failed or nothing ran.
function M.finish()
  local num_passed, num_failed = totals()
  if num_passed + num_failed + skipped == 0 then
    print "no spec ran"
    num_failed = 1
  end
  print(("%d passed, %d failed"):format(num_passed, num_failed))
  return num_failed == 0
end

local function on_file_start(busted)
  strict.install()
  local num_passed, num_failed = totals()
  file_start = {passed = num_passed, failed = num_failed, seconds = busted.monotime(), memory = live_memory.now()}
end

local function on_file_end(busted, file)
  -- busted keeps every test function, and with it the locals of the file, until the end: let them go.
  live_memory.forget(busted, file)
  local seconds = busted.monotime() - file_start.seconds
  local num_passed, num_failed = totals()
  if num_failed == file_start.failed then -- a failed test may leave tensors in its error
    local leak = live_memory.difference(file_start.memory)
    if leak then
      failed, num_failed = failed + 1, num_failed + 1
      print(("  FAIL  %s: %s"):format(file.name, leak))
    end
  end
  print(("%-48s %5d passed %3d failed %7.2f s"):format(file.name, num_passed - file_start.passed,
    num_failed - file_start.failed, seconds))
  io.flush()
end

local function on_failure(busted, element, message, trace)
  if element.descriptor ~= "it" then failed = failed + 1 end -- tests are counted when they end
  print("  FAIL  " .. full_name(busted, element))
  print(indent(message))
  if trace and trace.traceback and element.descriptor ~= "it" then print(indent(trace.traceback)) end
  io.flush()
end

local function subscribe()
  local busted = require "busted"
  local function on(channel, fn)
    busted.subscribe(channel, function(...)
      fn(busted, ...)
      return nil, true
    end, {priority = 1})
  end
  local pending_reason
  on({"file", "start"}, on_file_start)
  on({"file", "end"}, on_file_end)
  on({"failure"}, function(_, element, _, message, trace) on_failure(busted, element, message, trace) end)
  on({"error"}, function(_, element, _, message, trace) on_failure(busted, element, message, trace) end)
  on({"pending"}, function(_, _, _, message) pending_reason = message end)
  on({"test", "end"}, function(_, element, _, status)
    if status == "success" then
      passed = passed + 1
    elseif status == "pending" then
      skipped = skipped + 1
      print(("  skip  %s: %s"):format(full_name(busted, element), tostring(pending_reason or "no reason given")))
      pending_reason = nil
    else
      failed = failed + 1
    end
  end)
end

-- busted calls the module for a handler, and that one's subscribe.
return setmetatable(M, {
  __call = function()
    return {subscribe = subscribe}
  end,
})
